"""Which names of the namespace a cell can reach."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.used_names import Reached

EARLIER = """
import functools
import torch
stream = iter([1, 2]); other = iter([3]); spare = [stream]
def draw(): return next(stream)
def twice(): return draw() + draw()
class Trainer:
    def fit(self): return twice()
    @property
    def first(self): return spare
class Sub(Trainer): pass
class Net(torch.nn.Module):
    def forward(self, x): return x + next(other)
trainer, net = Sub(), torch.nn.Sequential(Net())
callbacks = {"end": [lambda: other]}
part = functools.partial(max, draw)
def outer():
    def inner(): return draw
    return inner
made = outer()
def gen():
    for x in other: yield x
running = gen()
joined = zip(gen(), [1])
@torch.no_grad()
def quiet(): return next(stream)
def shadowed(stream): return stream
"""


def names(cell: str, space: dict[str, Any] | None = None) -> set[str] | None:
    """What a cell of that text reaches of the names above."""
    if space is None:
        space = {"__name__": "__main__"}
        exec(EARLIER, space)
    found = Reached.by(Runner(cell, space, execute=print))
    return None if found is None else found.names


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("print(1)", set()),
        ("next(stream)", {"stream"}),
        ("x = [a for a in stream]", {"stream"}),
        ("draw()", {"draw", "stream"}),
        ("twice()", {"twice", "draw", "stream"}),
        ("trainer.fit()", {"trainer", "twice", "draw", "stream", "spare"}),
        ("net(torch.ones(1))", {"net", "torch", "other"}),
        ("for one in callbacks.values(): one[0]()", {"callbacks", "other"}),
        ("part()", {"part", "stream"}),
        ("made()()", {"made", "draw", "stream"}),
        ("next(running)", {"running"}),
        ("next(joined)", {"joined"}),
        ("quiet()", {"quiet", "stream"}),
        ("shadowed(3)", {"shadowed"}),
        ("stream = iter([4])\nfor x in stream: pass", set()),
        ("stream = iter([4])\nimport gc\ndraw()", {"draw"}),
        ("x = draw()\nstream = iter([4])\nnext(stream)", {"draw", "stream"}),
        ("stream = zip(map(draw, [1]))\ntwice()", {"draw", "stream", "twice"}),
        ("if spare: stream = iter([4])\nnext(stream)", {"spare", "stream"}),
        ("def own():\n    return next(stream)\nown()", {"stream"}),
        ("class Mine(Trainer):\n    x = other\nMine()", {"Trainer", "other", "twice", "draw", "stream", "spare"}),
        ("f = lambda: stream", {"stream"}),
        ("stream", {"stream"}),
        ("del stream", {"stream"}),
        ("print(vars(trainer))", {"trainer", "twice", "draw", "stream", "spare"}),
        ("await draw()", {"draw", "stream"}),
        ("%%gpudoctor --live\n%matplotlib inline\n!ls\ndraw?\nif 1:\n    %pip list\nnext(other)", {"other"}),
    ],
)
def test_a_cell_reaches_what_it_reads_and_what_that_reads(cell: str, found: set[str]) -> None:
    assert names(cell) == found


@pytest.mark.parametrize(
    "cell",
    [
        "eval('stream')",
        "exec(code)",
        "globals()['stream']",
        "locals()",
        "vars()",
        "%run other.py",
        "%%time\nx",
        "x = !ls",
    ],
)
def test_it_says_so_where_names_stand_in_no_code(cell: str) -> None:
    assert names(cell) is None


def test_it_says_so_where_a_function_takes_names_that_stand_in_no_code() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def sly(): return globals()['stream']\ndef eval(x): return x\ndef own(): return eval(3)", space)
    assert names("sly()", space) is None
    assert names("own()", space) == {"own", "eval"}


def test_a_callable_reaches_what_its_code_and_closure_read() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(EARLIER, space)
    for made, found in (
        ("twice", {"draw", "stream"}),
        ("made", {"draw", "stream"}),
        ("trainer.fit", {"twice", "draw", "stream", "spare"}),
        ("functools.partial(twice)", {"draw", "stream"}),
    ):
        reached = Reached.by(Runner(eval(made, space), space))
        assert reached is not None and reached.names == found


def test_of_a_module_that_is_reached_all_names_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module: Any = types.ModuleType("my_streams")
    module.__file__ = str(tmp_path / "my_streams.py")
    monkeypatch.setitem(sys.modules, "my_streams", module)
    exec("unused = iter([1])\nused = iter([2])\ndef draw(): return next(used)", vars(module))
    for cell, reached in (("my_streams.draw()", [module.unused, module.used]), ("draw()", [module.used])):
        space = {"my_streams": module, "draw": module.draw}
        found = Reached.by(Runner(cell, space, execute=print))
        assert found is not None
        assert {id(one) for one, _ in found.iterators.values()} == set(map(id, reached))


def test_looking_into_a_running_generator_keeps_none_of_its_variables() -> None:
    class Batch:
        gone = 0

        def __del__(self) -> None:
            Batch.gone += 1

    def batches() -> Any:
        while True:
            batch = Batch()
            yield batch
            del batch
            yield None

    stream = batches()
    space = {"stream": stream}
    next(stream)
    assert names("next(stream)", space) == {"stream"}
    assert Batch.gone == 0
    next(stream)
    assert Batch.gone == 1


def test_functools_is_walked_like_any_other_name() -> None:
    assert names("functools.reduce(max, [1])") == {"functools"}
    assert names("f()", {"f": functools.lru_cache(lambda: 1)}) == {"f"}

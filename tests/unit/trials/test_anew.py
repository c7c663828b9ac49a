"""Iterators of earlier cells: each side of a trial gets one of its own, or no trial begins."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import gpu_doctor
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.flops import counted
from tests.support.trial_starts import STARTS

START = """
import itertools, random, torch
from itertools import chain, count, cycle, islice
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
xs = torch.arange(24.0)[:, None]
net = nn.Linear(1, 1); opt = torch.optim.SGD(net.parameters(), 0.001)
data = TensorDataset(xs)
loader = DataLoader(data, 4, shuffle=True)
numbers, seen = [1, 2, 3, 4, 5, 6, 7, 8], []
def batches(of, start=0):
    while True:
        for (x,) in of:
            yield x
class Reader:
    def __init__(self, of): self.of = of
    def read(self):
        for (x,) in self.of: yield x
    def __iter__(self): return self.read()
    @property
    def half(self): return self.of
reader, parts = Reader(loader), {"train": loader}
def made(): return iter(loader)
"""
STEP = "opt.zero_grad(); net(x.reshape(-1, 1).float()).sum().backward(); opt.step(); seen.append(x)\n"
DRAW = """for step in range(4):
    x = next(it)
    x = torch.as_tensor(x[0] if isinstance(x, (list, tuple)) else x)
    """


def notebook(*cells: str) -> dict[str, Any]:
    """The names after some cells ran, with the texts as IPython keeps them."""
    space: dict[str, Any] = {"__name__": "__main__", "In": [""], "_ih": [""]}
    for cell in (START, *cells):
        ran(cell, space)
    return space


def ran(cell: str, space: dict[str, Any]) -> None:
    """Runs one more cell."""
    space["In"].append(cell)
    space[f"_i{len(space['In']) - 1}"] = cell
    exec(compile(cell, "<cell>", "exec"), space)


def drawn(value: Any) -> list[float]:
    """Numbers out of whatever an iterator gives."""
    if isinstance(value, torch.Tensor):
        return [float(one) for one in value.flatten()]
    return [one for part in value for one in drawn(part)] if isinstance(value, (list, tuple)) else [float(value)]


def trained(space: dict[str, Any], cell: str = DRAW + STEP, steps: int = 3) -> tuple[Case, list[list[float]]]:
    """A trial of a cell, and what each step of its last side got."""
    got: list[list[float]] = []
    case = gpu_doctor.case(cell, space)
    handle = register_optimizer_step_post_hook(lambda *of_it: got.append(drawn(space["x"])))
    try:
        effect = case.trial({"threads": 1}, steps=steps, pairs=1)
    finally:
        handle.remove()
    assert effect.outcome in ("completed", "budget-reached"), effect
    return case, got


LINES = (
    "it = iter(loader)",
    "it = cycle(loader)",
    "it = itertools.cycle(DataLoader(data, 3, shuffle=True))",
    "it = batches(loader)",
    "it = batches(of=loader, start=2 + 1)",
    "it = (x for epoch in range(9) for x in loader)",
    "it = islice(loader, 5)",
    "it = chain(numbers, [9, 10, *numbers])",
    "it = map(lambda x: x + 1, numbers)",
    "it = zip(numbers, loader)",
    "it = enumerate(iter(numbers))",
    "it = iter(parts['train'])",
    "it = iter(reader.of)",
    "it = iter(reader)",
    "it = reader.read()",
    "it: object = iter(loader)",
    "other = it = iter(loader)",
    "it = iter(enumerate(numbers))",
    "it = iter({1: 2, 3: 4, 5: 6, 7: 8, 9: 10})",
)


@pytest.mark.parametrize("line", LINES)
def test_a_side_gets_what_the_line_gives_and_the_users_goes_on_as_if_there_had_been_no_trial(line: str) -> None:
    space, twin = notebook(line, "first = next(it)"), notebook(line, "first = next(it)")
    theirs, state = space["it"], torch.get_rng_state()
    said = beforehand(gpu_doctor.case(DRAW + STEP, space))
    text = line.replace("other = ", "").replace(": object", "")
    assert said.refusals == ()
    (note,) = said.notes
    assert note.startswith("`it` is made anew") and f"({text})" in note
    case, got = trained(space)
    assert space["it"] is theirs and torch.equal(torch.get_rng_state(), state)
    assert case.effects[-1].from_start == ("it",) and case.effects[-1].not_restored == ()
    assert "`it` began at the start of its data" in str(case.effects[-1])
    assert case.beforehand().lost == ()
    assert len(got) >= 6, "both sides trained"
    assert got[:3] == got[3:6], "and saw the same"
    torch.set_rng_state(state)
    by_hand = notebook()
    torch.set_rng_state(state)  # as the sides began
    fresh = eval(text.partition(" = ")[2], by_hand)
    assert got[:3] == [drawn(_first(next(fresh))) for _ in range(3)]
    # The twin has had no trial.
    torch.set_rng_state(state)
    rest = [drawn(one) for one in itertools.islice(space["it"], 3)]
    torch.set_rng_state(state)
    assert rest == [drawn(one) for one in itertools.islice(twin["it"], 3)]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(
    "line",
    ["it = iter(numbers)", "it = iter(tuple(numbers))", "it = reversed(numbers)", "it = iter(range(1, 90, 7))",
     "it = iter(bytes(numbers))", "it = count()", "it = count(5)", "it = count(0.5, step=2)", "it = count(3, -1)"],
)  # fmt: skip
def test_what_tells_where_it_is_goes_on_there_also_without_a_history(line: str) -> None:
    space = notebook(line, "next(it); next(it)")
    del space["In"]
    space["alias"] = theirs = space["it"]
    case, got = trained(space, DRAW.replace("next(it)", "next([it, alias][step % 2])") + STEP)
    assert space["it"] is space["alias"] is theirs
    assert case.effects[-1].from_start == () and beforehand(case).notes == ()
    assert got[:3] == got[3:6] == [[float(one)] for one in itertools.islice(theirs, 3)]


def test_a_copy_stands_wherever_a_name_an_object_or_a_container_holds_it() -> None:
    space = notebook("it = count(3); reader.it = it; parts['it'] = it; numbers.append(it)\nclass Ids: it = it")
    theirs = space["it"]
    cell = "assert it is reader.it is parts['it'] is numbers[-1] is Ids.it\nnumbers.clear()\n" + DRAW + STEP
    case, got = trained(space, cell)
    assert got[:3] == got[3:6] == [[3.0], [4.0], [5.0]] and case.effects[-1].not_restored == ()
    assert space["reader"].it is space["parts"]["it"] is space["numbers"][-1] is space["Ids"].it is theirs
    assert space["it"] is theirs and next(theirs) == 3
    (space["kept"],) = [(theirs,)]
    assert len(beforehand(gpu_doctor.case(cell + "kept", space)).refusals) == 1, "nothing can stand in a tuple"


def test_a_counter_of_the_users_own_module_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module: Any = types.ModuleType("my_ids")
    module.__file__ = str(tmp_path / "my_ids.py")
    monkeypatch.setitem(sys.modules, "my_ids", module)
    exec("import itertools\nids = itertools.count(7)\ndef new(): return next(ids)", vars(module))
    theirs, space = module.ids, notebook("it = count(0)")
    space["new"] = module.new
    trained(space, DRAW.replace("next(it)", "new() + next(it)") + STEP)
    assert module.ids is theirs and next(theirs) == 7


def test_two_names_of_one_iterator_get_the_same_one() -> None:
    space = notebook("it = iter(loader)", "other = it", "unused = it")
    theirs = space["it"]
    case, _ = trained(space, "assert it is other\n" + DRAW + STEP)
    assert case.effects[-1].from_start == ("it", "other")
    assert space["it"] is space["other"] is space["unused"] is theirs
    case, _ = trained(space, DRAW.replace("it", "unused") + STEP)
    assert case.effects[-1].from_start == ("unused",) and space["unused"] is theirs


STUCK = (
    ("it = made()", "would use it up: create it in the cell"),
    ("it = iter(loader)\nloader = DataLoader(data, 2)", "create it in the cell."),
    ("it = iter(loader)\ndel numbers\nfor loader in [loader]: pass", "create it in the cell (it = iter(loader))."),
    ("it = batches(loader)\ndef batches(of): yield from of", "`it` is a generator from before this cell"),
    ("inner = iter(loader)\nit = enumerate(inner)", "`it` is an iterator from"),
    ("if numbers: it = cycle(loader)", "`it` is an iterator from"),
    ("it = iter(reader.half)", "create it in the cell (it = iter(loader))."),
    ("def again():\n    global it\n    it = cycle(loader)\nagain()\nit = cycle(loader)", "`it` is an iterator from"),
    ("it = cycle(loader)\nexec('loader = 3')", "`it` is an iterator from"),
    ("it = cycle(loader)\nfrom math import *", "`it` is an iterator from"),
    ("(it := cycle(loader))", "`it` is an iterator from"),
    ("it = iter(lambda: torch.ones(1), 3)", "`it` is an iterator from"),
    ("it = batches(loader)\nclass Keeps: pass\nkeeps = Keeps(); keeps.it = it; numbers.append(keeps)", "`it` is a gen"),
)


@pytest.mark.parametrize(("lines", "said"), STUCK)
def test_where_the_line_is_not_there_or_means_another_thing_no_trial_begins(lines: str, said: str) -> None:
    space = notebook(lines)
    theirs = space["it"]
    (sentence,) = beforehand(gpu_doctor.case(DRAW + STEP + "print(numbers)", space)).refusals
    assert said in sentence and sentence.count(".") == 1
    assert space["it"] is theirs


@pytest.mark.parametrize(
    "lines",
    [
        "reader.it = it = batches(loader)",
        "state = {'it': iter(loader)}",
        "state = [cycle(loader)]",
        "state = (count(),)",
        "def state(it=iter(loader)): return it",
        "class state: it = iter(loader)",
        "class state: __slots__ = ('it',)\nstate = state(); state.it = count()",
        "state = batches(loader).__next__",
        "from functools import partial\nstate = partial(next, batches(loader))",
    ],
)
def test_what_holds_an_iterator_is_named(lines: str) -> None:
    name = "reader" if "reader" in lines else "state"
    space = notebook(lines)
    space.pop("it", None)
    (sentence,) = beforehand(gpu_doctor.case(f"x = {name}", space)).refusals
    assert sentence.startswith(f"`{name}` holds a") and sentence.endswith("use it up: create it in the cell.")


ANY_KIND = (
    "import csv\nit = csv.reader(['1', '2'])",
    "import csv\nit = csv.DictReader(['1', '2'])",
    "from collections import deque\nit = iter(deque(numbers))",
    "from array import array\nit = iter(array('d', numbers))",
    "import numpy\nit = numpy.arange(500).flat",
    "import struct\nit = struct.iter_unpack('B', bytes(9))",
    "import os\nit = os.scandir('.')",
    "from multiprocessing.pool import IMapIterator\nclass Pool: _cache = {}\nit = IMapIterator(Pool)",
    "import pandas, io\nit = pandas.read_csv(io.StringIO('a\\n1\\n2'), chunksize=1)",
    "class Cycle(cycle): pass\nit = Cycle(numbers)",
    "import re\nit = re.finditer('a', 'aaa')",
)


@pytest.mark.parametrize("lines", ANY_KIND)
def test_an_iterator_is_known_wherever_its_type_comes_from(lines: str) -> None:
    space = notebook(lines)
    (sentence,) = beforehand(gpu_doctor.case(DRAW + STEP, space)).refusals
    getattr(space["it"], "close", int)()
    assert sentence.startswith("`it` is an iterator from before this cell")


def test_a_file_of_codecs_is_named_as_one() -> None:
    space = notebook("import codecs, io\nit = codecs.getreader('utf8')(io.BytesIO(b'1'))")
    (sentence,) = beforehand(gpu_doctor.case(DRAW + STEP, space)).refusals
    assert sentence.startswith("`it` is a file of codecs from before")


def test_an_iterator_of_an_installed_package_is_one_and_holds_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "site-packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    text = "class Peekable:\n    def __init__(self, of): self.of = of\n    def __next__(self): return next(self.of)\n"
    (tmp_path / "site-packages" / "peeks_at.py").write_text(text)
    space = notebook("from peeks_at import Peekable\nit = Peekable(batches(loader))")
    assert len(beforehand(gpu_doctor.case(DRAW + STEP, space)).refusals) == 1
    monkeypatch.delitem(sys.modules, "peeks_at")


def test_where_a_generator_reads_one_that_is_refused_nothing_is_promised() -> None:
    space = notebook("import csv\nrd = csv.reader(['1', '2'])\ndef rows():\n    for r in rd: yield r", "it = rows()")
    said = beforehand(gpu_doctor.case(DRAW + STEP, space))
    assert [one.partition(" from")[0] for one in said.refusals] == ["`rd` is an iterator"]
    assert "stays where it is" not in " ".join(said.notes)


OWN = """
class Own:
    def __init__(self): self.at = 0
    def __iter__(self): return self
    def __next__(self): self.at += 1; return float(self.at)
class OwnData(torch.utils.data.IterableDataset):
    __iter__ = Own.__iter__
    __next__ = Own.__next__
from collections.abc import Iterator
class OwnIterator(Iterator):
    __next__ = Own.__next__
it, data, third = Own(), OwnData(), OwnIterator(); it.at = data.at = third.at = 0
"""


def test_iterators_of_the_users_own_classes_are_put_back_like_any_object() -> None:
    space = notebook(OWN)
    trained(space, DRAW + "next(data); next(third)\n    " + STEP)
    assert space["it"].at == space["data"].at == space["third"].at == 0


def test_only_what_the_cell_can_touch_counts() -> None:
    space = notebook("it = made(); reader.it = made(); names = ['it']", "def f(): return next(it)")
    case = gpu_doctor.case("print(numbers)", space)
    assert beforehand(case).refusals == () and case.beforehand().lost == ()
    assert len(beforehand(gpu_doctor.case("f()", space)).refusals) == 1
    assert len(beforehand(gpu_doctor.case("eval(names[0])", space)).refusals) == 2, "any name may be meant"
    assert beforehand(gpu_doctor.case("it = cycle(loader)\nnext(it)", space)).refusals == ()


@pytest.mark.parametrize("start", STARTS)
def test_every_way_to_start_a_trial_is_refused(start: str) -> None:
    space = notebook("it = made()")
    theirs = space["it"]
    said = STARTS[start](gpu_doctor.case(DRAW + STEP, space))
    assert said.startswith("`it` is an iterator from before this cell") and "(it = iter(loader))" in said
    assert space["it"] is theirs and theirs._num_yielded == 0 and space["seen"] == []


def test_without_the_cells_texts_there_is_no_line_to_go_by() -> None:
    space = notebook("it = iter(loader)")
    del space["In"]
    assert len(beforehand(gpu_doctor.case(DRAW + STEP, space)).refusals) == 1


def test_a_side_that_fails_leaves_the_users_in_place() -> None:
    space = notebook("it = batches(loader)", "next(it)")
    theirs, case = space["it"], gpu_doctor.case("next(it)\nit = None\nraise ValueError('no')", space)
    assert case.trial({"threads": 1}, steps=3).outcome == "failed"
    assert space["it"] is theirs and theirs.gi_frame is not None


def test_what_a_sides_own_does_at_its_end_is_put_back_too() -> None:
    space = notebook(
        "ends = []\ndef once(of):\n    try:\n        for (x,) in of: yield x\n    finally: ends.append(1)",
        "it = once(loader)",
    )
    trained(space)
    assert space["ends"] == []


def test_a_run_of_ones_own_takes_the_users_iterator() -> None:
    space = notebook("it = count(3)")
    gpu_doctor.case(DRAW + STEP, space).run()
    assert next(space["it"]) == 7


def test_a_sides_own_iterator_is_made_under_its_settings() -> None:
    space = notebook("it = iter(loader)")
    case, _ = trained(space)
    case.trial({"batch_size": 8}, steps=2, pairs=1)
    base, candidate = case.trials[-1]
    assert (set(base.steps.samples), set(candidate.steps.samples)) == ({4.0}, {8.0})


def test_every_result_says_what_began_at_its_start() -> None:
    said = "`it` began at the start of its data"
    space = notebook("it = batches(loader)")
    theirs = space["it"]
    case = gpu_doctor.case(DRAW + STEP, space)
    (note,) = case.measured_aside(2, 5.0)[1]
    assert note.startswith(said)
    found = case.sweep({"threads": [1]}, steps=2, seconds=0.01)
    assert str(found).count(said) == 1
    (note,) = counted(case)[1]
    assert note.startswith(said)
    assert space["it"] is theirs and inspect.getgeneratorstate(theirs) == inspect.GEN_CREATED


def test_a_weak_proxy_is_no_iterator() -> None:
    """It has the methods of all that it may stand for, as Lightning's trainer holds some."""
    layer = torch.nn.Linear(2, 2)
    case = gpu_doctor.case("proxy", {"proxy": weakref.proxy(layer), "layer": layer})
    assert beforehand(case).refusals == ()

"""Whatever the cell looks like, a change written into it parses and is the change asked for, and nothing else.

The cell is drawn as data. Its text with other data is what the edited text must mean, statement for statement.
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass, replace
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from gpu_doctor.recording import Setup
from gpu_doctor.trials.fix import fix
from gpu_doctor.trials.knobs import KNOBS
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(40)
POSITIONAL: Final = ("batch_size", "shuffle")
"""DataLoader's parameters behind the dataset, in their order."""
WORKERS_ONLY: Final = {"persistent_workers": "False", "prefetch_factor": "None"}
"""What torch takes with workers alone, and its value for none."""
SWITCHES: Final = {"threads": "torch.set_num_threads({})", "cudnn_benchmark": "torch.backends.cudnn.benchmark = {}"}
FORMS: Final = ("{}", "({})", "{}  ", "int({})")

assert KNOBS  # the knobs are imported here, before a test's time is counted


@dataclass(frozen=True)
class Written:
    """A cell as data: the arguments of its two calls, what stands before them, and how it is laid out."""

    positional: tuple[str, ...]
    """Values of the first of `POSITIONAL`."""
    loader: dict[str, str]
    optimizer: dict[str, str]
    lr: str
    top: tuple[str, ...] = ()
    """Statements before the first that is no import."""
    imports: str = "import torch\n"
    a_line_each: bool = False
    trailing_comma: bool = False
    comment: str = ""
    """Behind the last argument, where they stand a line each."""
    in_function: bool = False
    epochs: bool = False
    line_end: str = "\n"

    def text(self) -> str:
        """The cell's own text."""
        loader = ["ds", *self.positional, *(f"{name}={value}" for name, value in self.loader.items())]
        optimizer = ["net.parameters()", "lr=lr", *(f"{name}={value}" for name, value in self.optimizer.items())]
        lines = [*self.top, f"lr = {self.lr}  # found by hand"]
        lines += f"loader = DataLoader{self._bracketed(loader)}".splitlines()
        lines += f"opt = torch.optim.AdamW{self._bracketed(optimizer)}".splitlines()
        loop = ["for größe in loader:", "    loss = net(größe).sum()  # €", "    loss.backward()", "    opt.step()"]
        if self.epochs:
            loop = ["for epoch in range(2):", *(f"    {line}" for line in loop)]
        if self.in_function:
            loop = ["def train():", *(f"    {line}" for line in loop), "train()"]
        whole = self.imports + "from torch.utils.data import DataLoader\n" + "\n".join([*lines, *loop]) + "\n"
        return whole.replace("\n", self.line_end)

    def _bracketed(self, items: list[str]) -> str:
        if not self.a_line_each:
            return f"({', '.join(items)}{',' if self.trailing_comma else ''})"
        last = items[-1] + ("," if self.trailing_comma else "")
        return "(\n" + "".join(f"    {one},\n" for one in items[:-1]) + f"    {last}{self.comment}\n)"

    def with_settings(self, given: dict[str, Any]) -> Written:
        """The cell as it should be under settings."""
        place, loader = list(self.positional), dict(self.loader)
        arguments = {name: repr(value) for name, value in given.items() if name in ARGUMENTS}
        if given.get("num_workers") == 0:
            arguments = {**{name: none for name, none in WORKERS_ONLY.items() if name in loader}, **arguments}
        for name, value in arguments.items():
            if name in POSITIONAL[: len(place)]:
                place[POSITIONAL.index(name)] = value
            else:
                loader[name] = value
        optimizer = dict(self.optimizer)
        if "fused_optimizer" in given:
            optimizer["fused"] = repr(given["fused_optimizer"])
            if given["fused_optimizer"] and "foreach" in optimizer:
                optimizer["foreach"] = "None"
        top = tuple(SWITCHES[name].format(value) for name, value in given.items() if name in SWITCHES)
        return replace(self, positional=tuple(place), loader=loader, optimizer=optimizer, top=(*top, *self.top))


ARGUMENTS: Final = ("num_workers", "batch_size", "pin_memory", "persistent_workers", "prefetch_factor")


def numbers(most: int) -> st.SearchStrategy[str]:
    return st.builds(lambda form, number: form.format(number), st.sampled_from(FORMS), st.integers(0, most))


@st.composite
def cells(draw: st.DrawFn) -> Written:
    positional = tuple(draw(st.lists(numbers(64), max_size=2)))
    values = {
        "batch_size": numbers(64),
        "num_workers": numbers(4),
        "pin_memory": st.sampled_from(("True", "False", "not True")),
        "persistent_workers": st.sampled_from(("True", "False")),
        "prefetch_factor": numbers(8),
        "drop_last": st.just("True"),
    }
    names = draw(st.lists(st.sampled_from(list(values)), unique=True))
    loader = {name: draw(values[name]) for name in names if name not in POSITIONAL[: len(positional)]}
    flags = draw(st.lists(st.sampled_from(("fused", "foreach", "amsgrad")), unique=True))
    return Written(
        positional,
        loader,
        {name: draw(st.sampled_from(("True", "False", "None"))) for name in flags},
        draw(st.sampled_from(("0.1", "1e-3", "3E-4"))),
        a_line_each=draw(st.booleans()),
        trailing_comma=draw(st.booleans()),
        comment=draw(st.sampled_from(("", "  # so, (yes)", "  # ) not here"))),
        in_function=draw(st.booleans()),
        epochs=draw(st.booleans()),
        line_end=draw(st.sampled_from(("\n", "\r\n"))),
    )


WANTED: Final = {
    "num_workers": st.integers(0, 8),
    "batch_size": st.integers(1, 512),
    "pin_memory": st.booleans(),
    "persistent_workers": st.booleans(),
    "prefetch_factor": st.integers(1, 16),
    "fused_optimizer": st.booleans(),
    "threads": st.integers(1, 16),
    "cudnn_benchmark": st.booleans(),
}


def meaning(text: str) -> str:
    """What a text says, whatever the order of a call's keywords."""
    tree = ast.parse(text)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            call.keywords.sort(key=lambda one: one.arg or "")
    return ast.dump(tree)


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [one.string.rstrip() for one in tokens if one.type == tokenize.COMMENT]


@CHECK
@given(cells(), st.fixed_dictionaries({}, optional=WANTED))
def test_the_edited_cell_is_the_cell_with_just_that_change(cell: Written, wanted: dict[str, Any]) -> None:
    text = cell.text()
    found = fix([text], wanted, Setup(), lambda name: f"paste {name}")
    after = found.cells[0].after if found.cells else text
    assert found.complete and not found.paste
    assert meaning(after) == meaning(cell.with_settings(wanted).text())
    assert comments(after) == comments(text)
    assert after.count("\r\n") == (after.count("\n") if cell.line_end == "\r\n" else 0)


@CHECK
@given(cells(), st.fixed_dictionaries({}, optional=WANTED))
def test_a_second_time_there_is_nothing_left_to_change(cell: Written, wanted: dict[str, Any]) -> None:
    once = cell.text()
    for _ in range(2):
        before, found = once, fix([once], wanted, Setup(), str)
        once = found.cells[0].after if found.cells else once
    assert once == before


@CHECK
@given(cells(), st.booleans())
def test_what_has_no_place_is_left_to_paste_and_changes_no_letter(cell: Written, compiled: bool) -> None:
    """The model is known by no name here, and there is no autocast to switch off."""
    found = fix([cell.text()], {"amp": "off", "compile": compiled}, Setup(), lambda name: f"paste {name}")
    assert not found.cells and not found.complete and found.notes
    assert found.paste == "paste amp\npaste compile"

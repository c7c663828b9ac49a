"""Cells of unusual text: magics that nobody knows, a text that is too long to be asked about, `match` statements."""

from __future__ import annotations

import pytest

from gpu_doctor.cell import kept_graphs
from gpu_doctor.cell.retained_graphs import LONGEST
from gpu_doctor.recording import LoaderSetup, Setup
from gpu_doctor.trials import fix as fixing

SETUP = Setup(loaders=(LoaderSetup(key="Rows", batch_size=16, dataset="Rows"),))
STEP = "model(x).sum().backward()\noptimizer.step()\n"


def with_workers(cell: str) -> tuple[str, tuple[str, ...]]:
    """The cell with two workers written into it, and what was noted."""
    found = fixing.fix([cell], {"num_workers": 2}, SETUP, str, {})
    return found.cells[0].after if found.cells else cell, found.notes


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("magic", ["%%wandb --project images", "%%time", "\n%%my_magic"])
def test_a_cell_under_a_magic_that_nobody_knows_is_changed_below_it(magic: str) -> None:
    cell = f"{magic}\nloader = DataLoader(rows, 16)\nfor x in loader:\n{indented(STEP)}"
    after, notes = with_workers(cell)
    assert after == cell.replace("rows, 16", "rows, 16, num_workers=2") and not notes


def test_a_cell_of_another_language_is_left_alone() -> None:
    cell = "%%bash\nloader = DataLoader(rows, 16)\n"
    after, notes = with_workers(cell)
    assert after == cell and notes


def test_of_a_text_of_more_than_two_hundred_thousand_characters_no_line_is_judged() -> None:
    slow = "for x in loader:\n    norm = float(model.weight.norm())\n    losses.append(model(x).sum())\n" + indented(
        STEP
    )
    assert kept_graphs(slow)
    text = slow + "# a comment\n" * (LONGEST // 12)
    assert len(text) > LONGEST
    assert not kept_graphs(text)
    assert with_workers("loader = DataLoader(rows, 16)\n" + text)[0].startswith("loader = DataLoader(rows, 16, num_")


def test_the_bodies_of_a_match_statement_are_read_and_changed() -> None:
    cell = (
        "match kind:\n    case 'images':\n        loader = DataLoader(rows, 16)\n"
        "for x, y in loader:\n    match y:\n        case None:\n            continue\n        case _:\n"
        "            loss = criterion(model(x), y)\n            losses.append(loss)\n"
        "            loss.backward()\n            optimizer.step()\n"
    )
    assert [one.text for one in kept_graphs(cell)] == ["losses.append(loss)"]
    assert with_workers(cell)[0] == cell.replace("rows, 16", "rows, 16, num_workers=2")

"""Writes settings into a cell's own text, which a trial then runs: the text tried is the text to paste.

A change in a function of an earlier cell is run too: the changed function is defined anew at the cell's top. Any other
change of an earlier cell cannot be run again, since that cell has made the objects that the loop trains; its knobs are
turned while the cell runs, where they can be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpu_doctor.cell import CellSource, Edit, Edits
from gpu_doctor.cell.loop import names_in
from gpu_doctor.cell.switches import at_top
from gpu_doctor.cell.syntax import FUNCTIONS, Function
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.fix import SAME_PLACE, edits_of, reads
from gpu_doctor.trials.knobs.draft import Draft

NO_TEXT: Final = "What is run is not given as text."
EARLIER: Final = (
    "The change lies in {0}, outside of a function that this cell calls, and a trial does not run it again."
)
NOT_RUN: Final = "No run has told what the loaders are."
"""Turned, a loader is refused that would deliver its items several times; a text would not know."""


@dataclass(frozen=True)
class Written:
    """The text that a run under some settings executes."""

    text: str
    """The cell with the settings written in; its own text where none is."""
    reasons: dict[str, str] = field(default_factory=dict)
    """The knobs of settings that are not in the text, and are turned while it runs; for each why, a sentence."""
    anew: frozenset[str] = frozenset()
    """Functions of earlier cells that the text defines anew: their names get the user's own back after the run."""


def written(draft: Draft, source: str, settings: Settings) -> Written:
    """Writes what it can of some settings into a cell.

    Args:
        draft: the cells that were run; the last one is the cell.
        source: the cell's text.
        settings: knob values.
    """
    cells = draft.cells.cells
    if not cells or cells[-1].text != source:
        return not_written(settings, draft.notes[-1] if draft.notes else NO_TEXT, source)
    placed, reasons = edits_of(draft, settings)
    if draft.setup == Setup():
        for names in [names for names in placed if knobs.known(names[0]).written_with == "loader"]:
            reasons |= dict.fromkeys(names, NOT_RUN)
            del placed[names]
    called = _called(cells)
    kept: Edits = []
    for names, edits in placed.items():
        outside = [cell for cell, edit in edits if cell is not cells[-1] and not _function_of(cell, edit) & called]
        if outside:
            reasons |= dict.fromkeys(names, EARLIER.format(outside[0].label))
        else:
            kept += edits
    text = _with(cells[-1], kept) if reads(kept) else ""
    if CellSource(text).tree is None or not text:
        return not_written(settings, SAME_PLACE, source)
    anew = frozenset[str]().union(*(_function_of(where, edit) for where, edit in kept if where is not cells[-1]))
    return Written(text, reasons, anew)


def not_written(settings: Settings, reason: str, source: str) -> Written:
    """Returns the unchanged text, with one reason for all settings."""
    return Written(source, dict.fromkeys(settings, reason))


def _with(cell: CellSource, edits: Edits) -> str:
    """Returns the cell's text with its own edits, and at its top the functions of earlier cells with theirs."""
    own = [edit for where, edit in edits if where is cell]
    above = [
        text
        for earlier in dict.fromkeys(where for where, _ in edits if where is not cell)
        for text in _changed(earlier, [edit for where, edit in edits if where is earlier])
    ]
    return cell.edited([*own, at_top(cell, above)] if above else own)


def _changed(cell: CellSource, edits: list[Edit]) -> Iterator[str]:
    """The functions of an earlier cell that edits change, as they are then; and whole lines that stand before them."""
    for begin, end, _ in _functions(cell):
        mine = [Edit(edit.begin - begin, edit.end - begin, edit.text) for edit in edits if begin <= edit.begin <= end]
        if mine:
            yield CellSource(cell.text[begin:end]).edited(mine)


def _function_of(cell: CellSource, edit: Edit) -> set[str]:
    """Returns the name of the function that an edit lies in, or that it stands before; empty for none."""
    return {function.name for begin, end, function in _functions(cell) if begin <= edit.begin and edit.end <= end}


def _functions(cell: CellSource) -> Iterator[tuple[int, int, Function]]:
    """Yields begin, end and node of each top-level function of a cell, decorators included."""
    for statement in cell.tree.body if cell.tree is not None else ():
        if isinstance(statement, FUNCTIONS):
            first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
            yield cell.line_begin(first), cell.line_end(statement.end_lineno or statement.lineno), statement


def _called(cells: Sequence[CellSource]) -> set[str]:
    """Returns the top-level functions of cells that the last cell names, directly or through each other."""
    functions = {function.name: function for cell in cells for _, _, function in _functions(cell)}
    found: set[str] = set()
    named = names_in(cells[-1])
    while new := (named & functions.keys()) - found:
        found |= new
        named = {node.id for name in new for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
    return found

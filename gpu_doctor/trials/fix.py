"""Writes settings into the user's cells: the exact lines that change, as a diff and as whole cells.

The text is edited and never executed. What cannot be placed is said in one sentence, with the lines to paste instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gpu_doctor.cell import CellSource, Edits, Fix, FixedCell, NotPlaced
from gpu_doctor.cell.calls import Cells
from gpu_doctor.recording import Settings, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.framework_fix import framework_edits
from gpu_doctor.trials.knobs.draft import Draft

SAME_PLACE: Final = "These settings change the same place in the code: make the changes by hand."


def fix(
    sources: Sequence[str],
    settings: Settings,
    setup: Setup,
    code: Callable[[str], str],
    namespace: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> Fix:
    """Returns the change that writes settings into some cells.

    Args:
        sources: texts of the cells that were run, oldest first; the last one is the cell that trains.
        settings: knob values.
        setup: setup that a run as written recorded.
        code: the lines to paste for one setting, where its place is not found.
        namespace: namespace of the cells, with the objects of their names.
        labels: labels of the sources, for the user.
    """
    draft = drafted(sources, setup, namespace, labels)
    placed, reasons = edits_of(draft, settings)
    draft.notes.extend(dict.fromkeys(reasons.values()))
    found = [edit for edits in placed.values() for edit in edits]
    left = [name for name in settings if name in reasons]
    if not reads(found):
        found, left = [], list(settings)
        draft.notes.append(SAME_PLACE)
    cells = [
        FixedCell(cell.label, cell.text, after)
        for cell in draft.cells.cells
        if (after := cell.edited(edit for where, edit in found if where is cell)) != cell.text
    ]
    paste = "\n".join(line for name in left if (line := code(name)))
    return Fix(dict(settings), tuple(cells), tuple(dict.fromkeys(draft.notes)), paste, not left)


def drafted(
    sources: Sequence[str], setup: Setup, namespace: Mapping[str, Any] | None = None, labels: Sequence[str] = ()
) -> Draft:
    """Prepares the cells into which settings are written; see `fix`."""
    names, last = [*labels, *[""] * len(sources)], len(sources) - 1
    texts = [
        CellSource(text, names[index] or ("this cell" if index == last else f"earlier cell {index + 1}"), index)
        for index, text in enumerate(sources)
    ]
    draft = Draft(Cells([source for source in texts if source.tree is not None], dict(namespace or {})), setup)
    if not texts or texts[-1].tree is None:
        draft.notes.append("This cell's text could not be read as Python.")
    return draft


def edits_of(draft: Draft, settings: Settings) -> tuple[dict[tuple[str, ...], Edits], dict[str, str]]:
    """Returns the edits that give the cells some settings, by the knobs that are written together.

    Returns:
        The edits, and for each knob that has no place in the cells why, in one sentence.
    """
    placed: dict[tuple[str, ...], Edits] = {}
    reasons: dict[str, str] = {}
    for names in _groups(settings):
        try:
            edits = _edits(draft, {name: settings[name] for name in names})
        except NotPlaced as reason:
            reasons |= dict.fromkeys(names, str(reason))
            continue
        if reads(edits):
            placed[names] = edits
        else:
            said = f"The change for {', '.join(names)} could not be written into the code automatically."
            reasons |= dict.fromkeys(names, said)
    return placed, reasons


def _groups(settings: Settings) -> list[tuple[str, ...]]:
    """Groups settings: arguments of one call together, each other alone, those that may meet at a line last."""
    together: dict[str, list[str]] = {}
    for name in settings:
        group = knobs.known(name).written_with
        if group:
            together.setdefault(group, []).append(name)
    others = [name for name in settings if not knobs.known(name).written_with]
    others.sort(key=lambda name: knobs.known(name).written_late)
    return [*map(tuple, together.values()), *((name,) for name in others)]


def reads(edits: Edits) -> bool:
    """True if every cell is still Python when edited, and no two edits overlap."""
    for cell in dict.fromkeys(cell for cell, _ in edits):
        mine = sorted({edit for where, edit in edits if where is cell}, key=lambda edit: (edit.begin, edit.end))
        if any(after.begin < before.end for before, after in pairwise(mine)):
            return False
        if CellSource(cell.edited(edit for where, edit in edits if where is cell)).tree is None:
            return False
    return True


def _edits(draft: Draft, settings: Settings) -> Edits:
    """Returns the edits for the settings of one group: a framework's own place for them comes first.

    Raises:
        NotPlaced: if they cannot be placed.
    """
    told = framework_edits(draft.cells, settings)
    return told if told is not None else knobs.known(next(iter(settings))).edit(settings, draft)

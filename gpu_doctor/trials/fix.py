"""A cure as code: the exact lines of the user's cells that change for some settings, as a diff and as whole cells.

The text is edited and never executed. What cannot be placed is said in one sentence, with the lines to paste instead.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gpu_doctor.cell import literals
from gpu_doctor.cell.arguments import HIDDEN, REPLACE, Slot, set_arguments, slot
from gpu_doctor.cell.calls import Cells
from gpu_doctor.cell.constructors import optimizer_makers
from gpu_doctor.cell.fix import Fix, FixedCell
from gpu_doctor.cell.loop import Edits, LoopLines, NothingToPaste, NotPlaced
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.switches import own_amp_off, switched, torch_name, with_import
from gpu_doctor.recording import Settings, SettingValue, Setup
from gpu_doctor.trials.framework_fix import framework_edits, trainer_edits
from gpu_doctor.trials.knobs.amp.edit import autocast
from gpu_doctor.trials.knobs.loader_edit import LoaderLines
from gpu_doctor.trials.knobs.non_blocking import non_blocking

LOADER_SETTINGS: Final = ("num_workers", "batch_size", "pin_memory", "persistent_workers", "prefetch_factor")
VARY: Final = "vary."
ORDER: Final = ("compile", "channels_last", "amp")
"""In which order lines that may meet at one place are written; everything else comes before them."""


def fix(
    sources: Sequence[str],
    settings: Settings,
    setup: Setup,
    code: Callable[[str], str],
    namespace: Mapping[str, Any] | None = None,
    labels: Sequence[str] = (),
) -> Fix:
    """The change of some cells for settings.

    Args:
        sources: texts of the cells that were run, oldest first; the last one is the cell that trains.
        settings: knob values. setup: what a run as written found.
        code: the lines to paste for one setting, where its place is not found.
        namespace: where the cells ran: what their names mean. labels: of the sources, for people.
    """
    names = [*labels, *[""] * len(sources)]
    last = len(sources) - 1
    texts = [
        CellSource(text, names[index] or ("this cell" if index == last else f"earlier cell {index + 1}"), index)
        for index, text in enumerate(sources)
    ]
    work = _Work(Cells([one for one in texts if one.tree is not None], dict(namespace or {})), setup)
    if not texts or texts[-1].tree is None:
        work.notes.append("This cell's text could not be read as Python.")
    left, told = dict(settings), list[str]()
    for names_of_one in _groups(settings):
        try:
            edits = work.edits({name: settings[name] for name in names_of_one})
        except NotPlaced as reason:
            work.notes.append(str(reason))
            told += names_of_one if isinstance(reason, NothingToPaste) else ()
            continue
        if _reads(edits):
            work.found += edits
            for name in names_of_one:
                left.pop(name, None)
        else:
            work.notes.append(f"The change for {', '.join(names_of_one)} could not be written into the text as it is.")
    cells = [
        FixedCell(cell.label, cell.text, after)
        for cell in texts
        if (after := cell.edited(edit for where, edit in work.found if where is cell)) != cell.text
    ]
    if not _reads(work.found):
        cells, left = [], dict(settings)
        work.notes.append("The changes of these settings meet in one place of the text: make them by hand.")
    paste = "\n".join(line for name in left if name not in told and (line := code(name)))
    return Fix(dict(settings), tuple(cells), tuple(dict.fromkeys(work.notes)), paste, not left)


def _groups(settings: Settings) -> list[tuple[str, ...]]:
    """Settings that are arguments of one call together, each other one alone, those that may meet last."""
    loader = tuple(name for name in settings if name in LOADER_SETTINGS)
    others = [name for name in settings if name not in loader]
    others.sort(key=lambda name: ORDER.index(name) if name in ORDER else -1)
    return [*([loader] if loader else []), *((name,) for name in others)]


def _reads(edits: Edits) -> bool:
    """Whether every cell is still Python when edited, and no two edits overlap."""
    for cell in dict.fromkeys(cell for cell, _ in edits):
        mine = sorted({edit for where, edit in edits if where is cell}, key=lambda edit: (edit.begin, edit.end))
        if any(after.begin < before.end for before, after in pairwise(mine)):
            return False
        if CellSource(cell.edited(edit for where, edit in edits if where is cell)).tree is None:
            return False
    return True


class _Work:
    """The changes of one fix as they are found."""

    def __init__(self, cells: Cells, setup: Setup) -> None:
        self.cells, self.setup = cells, setup
        self.loop = LoopLines(cells)
        self.found: Edits = []
        self.notes: list[str] = []
        self.loaders = LoaderLines(cells, setup, self.notes)

    def edits(self, settings: Settings) -> Edits:
        """The edits for the settings of one group.

        Raises:
            NotPlaced: if they cannot be placed.
        """
        name, value = next(iter(settings.items()))
        told = framework_edits(self.cells, settings)
        if told is None:
            told = trainer_edits(self.cells, name, value)
        if told is not None:
            return told
        device = self.setup.device.partition(":")[0]
        if name in LOADER_SETTINGS:
            return self.loaders.edits(settings)
        if name.startswith(VARY):
            return self._variable(name[len(VARY) :], value)
        if name == "fused_optimizer":
            return self._optimizer(bool(value))
        if name == "non_blocking":
            return non_blocking(self.loop, bool(value))
        if name == "compile" and value:
            return self.loop.compiled()
        if name == "channels_last" and value:
            torch, edits = self._torch()
            return [*edits, *self.loop.channels_last(torch)]
        if name == "amp" and value in ("bf16", "fp16"):
            torch, edits = self._torch()
            dtype = "bfloat16" if value == "bf16" else "float16"
            return [*edits, *self._autocast(torch, device, dtype)]
        if name == "amp":
            return own_amp_off(self.cells)
        if name == "worker_threads" and value:
            return self.loaders.worker_threads(int(value))
        if name in ("tf32", "cudnn_benchmark", "threads"):
            return switched(self.cells, name, value)
        raise NotPlaced(f"There is no line for {name}={value} in the cells as they are.")

    def _torch(self) -> tuple[str, Edits]:
        name = torch_name(self.cells)
        return (name, []) if name else ("torch", with_import(self.cells))

    def _autocast(self, torch: str, device: str, dtype: str) -> Edits:
        edits = autocast(self.loop, torch, device, dtype)
        text = "".join(cell.text for cell in self.cells.cells)
        if "BCELoss" in text or "binary_cross_entropy(" in text:
            self.notes.append(
                "On a GPU binary_cross_entropy cannot be computed under autocast: take BCEWithLogitsLoss and leave the "
                "sigmoid out of the model."
            )
        return edits

    def _optimizer(self, value: bool) -> Edits:
        found: dict[Slot, str] = {}
        for made in optimizer_makers(self.cells, self.setup.optimizers):
            one = slot(self.cells, made, "fused")
            if one.kind == HIDDEN:
                raise NotPlaced(f"The optimizer of {one.site.place} does not take fused=... as a keyword.")
            found[one] = repr(value)
            each = slot(self.cells, made, "foreach")
            if value and each.kind == REPLACE:
                found[each] = "None"  # torch takes one of the two
        if not found:
            raise NotPlaced("The call that makes the optimizer was not found in the cells.")
        return list(set_arguments(found))

    def _variable(self, name: str, value: SettingValue) -> Edits:
        cell = self.cells.cells[-1] if self.cells.cells else CellSource("")
        try:
            place = literals.find(cell.tree or ast.Module([], []), name)
            other = literals.node_of(literals.fitted(place.written, value))
        except literals.NoLiteral as reason:
            raise NotPlaced(str(reason)) from None
        return [(cell, edit) for edit in _rewritten(cell, place.node, other)]


def _rewritten(cell: CellSource, old: ast.expr, new: ast.expr) -> Iterator[Edit]:
    """The edits that make one literal another: of collections of one shape only the elements that differ."""
    if ast.dump(old) == ast.dump(new):
        return
    inside: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(old, (ast.Tuple, ast.List)) and isinstance(new, type(old)) and len(old.elts) == len(new.elts):
        inside = list(zip(old.elts, new.elts, strict=True))
    elif isinstance(old, ast.Dict) and isinstance(new, ast.Dict) and _keys(old) == _keys(new):
        inside = list(zip(old.values, new.values, strict=True))
    if not inside:
        yield Edit(cell.begin(old), cell.end(old), ast.unparse(new))
    for before, after in inside:
        yield from _rewritten(cell, before, after)


def _keys(one: ast.Dict) -> list[str]:
    return [ast.dump(key) for key in one.keys if key is not None]

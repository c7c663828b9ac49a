"""Settings of a model that is handed to a trainer, Lightning's or transformers': written where it is handed over.

Such a program has no loop of its own in which model and batch are met: the model is turned or compiled on its way into
`trainer.fit(model)` or `Trainer(model=...)`, and copies are the framework's own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from gpu_doctor.cell.arguments import ADD, set_arguments, slot
from gpu_doctor.cell.calls import Cells, Site
from gpu_doctor.cell.constructors import newest_of, training_loops
from gpu_doctor.cell.loop import Edits, NothingToPaste, NotPlaced
from gpu_doctor.cell.source import CellSource, Edit
from gpu_doctor.cell.switches import torch_name, with_import
from gpu_doctor.recording import SettingValue
from gpu_doctor.trials.framework_fix import FRAMEWORKS, Framework

_LIGHTNING: Final = Framework("Trainer", ("lightning", "pytorch_lightning"), {})
_TRANSFORMERS: Final = Framework("Trainer", ("transformers", "trl"), {})
_ACCELERATE: Final = Framework("Accelerator", ("accelerate",), {})
_ARGUMENTS: Final = next(one for one in FRAMEWORKS if one.name == "TrainingArguments")
WAITS_NOT: Final = (
    "Lightning's own copies to a GPU do not wait for each other already: what they need is pinned batches, "
    "DataLoader(..., pin_memory=True)."
)
"""lightning.fabric.utilities.apply_func.move_data_to_device gives non_blocking=True but for the devices cpu and mps."""
BY_ACCELERATE: Final = (
    "accelerate copies the batches itself: make it with Accelerator(dataloader_config="
    "DataLoaderConfiguration(non_blocking=True)), DataLoaderConfiguration being one of accelerate.utils."
)


def trainer_edits(cells: Cells, knob: str, value: SettingValue) -> Edits | None:
    """The edits for a setting of a model, or of copies, that a trainer is in charge of; None where none is.

    Raises:
        NotPlaced: if the model that is handed over cannot be told, or the framework has another way.
    """
    own_loop = bool(list(training_loops(cells.cells[-1:])))
    if knob == "non_blocking" and value:
        return _copies(cells, own_loop)
    if own_loop or not value or knob not in ("channels_last", "compile"):
        return None
    handed = list(_handed(cells))
    if not handed:
        return None
    if len(handed) > 1:
        places = " and ".join(f"line {node.lineno} of {cell.label}" for cell, node in handed)
        raise NotPlaced(f"A model is handed to a trainer on {places}: it cannot be told which one is meant.")
    cell, node = handed[0]
    torch = torch_name(cells)
    if not torch and cell is not cells.cells[-1]:
        raise NotPlaced(
            f"torch is not imported before line {node.lineno} of {cell.label}, where the model is handed over."
        )
    edits: Edits = [] if torch else with_import(cells)
    return [*edits, *((cell, edit) for edit in _turned(cell, node, knob, torch or "torch"))]


def _handed(cells: Cells) -> Iterator[tuple[CellSource, ast.expr]]:
    """The models that are handed to trainers, each where it is."""
    for made in newest_of(cells.made_by(_TRANSFORMERS.is_it, ("model",))):
        node = made.site.argument("model")
        if node is not None:
            yield made.site.cell, node
    trainers = list(cells.made_by(_LIGHTNING.is_it, ()))
    if not trainers:
        return
    fits = [(cell, call, on) for cell, call in cells.calls("fit") if (on := getattr(call.func, "value", None))]
    named = {ast.unparse(target) for one in trainers for target in one.targets}
    sure = [one for one in fits if ast.unparse(one[2]) in named]
    for cell, call, _ in sure or fits:  # scikit-learn's objects have a `fit` as well
        node = Site(cell, call, ("model",)).argument("model")
        if node is not None:
            yield cell, node


def _turned(cell: CellSource, node: ast.expr, knob: str, torch: str) -> Iterator[Edit]:
    begin, end = cell.begin(node), cell.end(node)
    if knob == "compile":
        yield Edit(begin, begin, f"{torch}.compile(")
        yield Edit(end, end, ")")
        return
    whole = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    if not whole:
        yield Edit(begin, begin, "(")
    yield Edit(end, end, f"{'' if whole else ')'}.to(memory_format={torch}.channels_last)")


def _copies(cells: Cells, own_loop: bool) -> Edits | None:
    """transformers has an argument for it, Lightning's copies do not wait anyway, accelerate wants an object."""
    arguments: list[Any] = newest_of(cells.made_by(_ARGUMENTS.is_it, ()))
    if arguments and not own_loop:
        one = slot(cells, arguments[0], "accelerator_config")
        if len(arguments) > 1 or one.kind != ADD:
            raise NothingToPaste(
                f'{one.site.place[0].upper()}{one.site.place[1:]} decides accelerator_config: add "non_blocking": True '
                "to it."
            )
        return list(set_arguments({one: '{"non_blocking": True}'}))
    if not own_loop and list(cells.made_by(_LIGHTNING.is_it, ())):
        raise NothingToPaste(WAITS_NOT)
    text = "".join(cell.text for cell in cells.cells)
    if list(cells.made_by(_ACCELERATE.is_it, ())) and ".prepare" in text and ".cuda(" not in text:
        raise NothingToPaste(BY_ACCELERATE)
    return None

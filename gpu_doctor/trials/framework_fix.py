"""Writes settings as a framework takes them: as arguments of its classes, or around models passed to it.

If a framework makes the loader or enters autocast itself, no line of the user's cells does it: the line to change is
the argument that configures the framework.

A model that is passed to a trainer appears in no loop of the user's own: it is converted or compiled where it is passed
to `trainer.fit(model)` or `Trainer(model=...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.capture.frameworks import FRAMEWORKS, Class
from gpu_doctor.cell import CellSource, Edits, NotPlaced
from gpu_doctor.cell.arguments import HIDDEN, REPLACE, Slot, set_arguments, slot
from gpu_doctor.cell.calls import Cells, Made, Site, function_around
from gpu_doctor.cell.constructors import LOADER, is_loader, newest_of, training_loops
from gpu_doctor.cell.switches import torch_name
from gpu_doctor.recording import Settings

ONLY_IF_GIVEN: Final = {"bf16": "False", "fp16": "False"}
"""Values that are not written if the argument is missing."""
WORKERS_ONLY: Final = {
    "dataloader_prefetch_factor": "None",
    "dataloader_persistent_workers": "False",
    "iterator_train__prefetch_factor": "None",
    "iterator_train__persistent_workers": "False",
}
"""Arguments that torch refuses without workers, and their value for none."""
_MAKES_TRAINING: Final = tuple(name for framework in FRAMEWORKS for name in framework.makes_training_loader)


def framework_edits(cells: Cells, settings: Settings) -> Edits | None:
    """Returns the edits that give a framework the settings of one group; None if no framework decides them.

    Raises:
        NotPlaced: The framework's call is ambiguous, or passes its arguments in a way that cannot be read.
    """
    newest = cells.cells[-1:]
    if "amp" not in settings and list(training_loops(newest)):
        return None  # a loop of the user's own makes its own loaders
    for kind in (kind for framework in FRAMEWORKS for kind in framework.classes):
        if not all(name in kind.settings for name in settings):
            continue
        made = newest_of(cells.made_by(kind.is_it, ()))
        if not made or ("num_workers" in kind.settings and _own_loader(cells, settings)):
            continue
        if len(made) > 1:
            places = " and ".join(maker.site.place for maker in made)
            raise NotPlaced(f"Several calls make a {kind.name}: {places}.")
        return list(set_arguments(_slots(cells, kind, made[0], settings)))
    return None


def _slots(cells: Cells, kind: Class, made: Made, settings: Settings) -> dict[Slot, str]:
    given = {name: text for knob, value in settings.items() for name, text in kind.settings[knob](value).items()}
    if settings.get("num_workers") == 0:
        given = {**WORKERS_ONLY, **given}
    found: dict[Slot, str] = {}
    for name, text in given.items():
        optional = ONLY_IF_GIVEN.get(name) == text or (name in WORKERS_ONLY and WORKERS_ONLY[name] == text)
        found_slot = slot(made, name)
        if optional and found_slot.kind != REPLACE:
            continue
        if found_slot.kind == HIDDEN:
            raise NotPlaced(
                formatting.sentence(f"{found_slot.site.place} passes {name} in a way that cannot be read here.")
            )
        found[found_slot] = text
    if not found:
        raise NotPlaced(formatting.sentence(f"{made.site.place} has nothing to change."))
    return found


def _own_loader(cells: Cells, settings: Settings) -> bool:
    """True if the training loader is made by a method that the framework calls for it: then that is the place."""
    makers = cells.made_by(is_loader, LOADER) if "num_workers" in settings or "batch_size" in settings else ()
    return any(
        getattr(function_around(maker.site.cell, maker.site.call), "name", "") in _MAKES_TRAINING for maker in makers
    )


def handed_model(cells: Cells) -> tuple[CellSource, ast.expr] | None:
    """Returns the model passed to a trainer, with its cell; None if the program's own loop trains.

    Raises:
        NotPlaced: if it cannot be told, or comes before torch is imported.
    """
    handed = [] if list(training_loops(cells.cells[-1:])) else list(_handed(cells))
    if not handed:
        return None
    if len(handed) > 1:
        places = " and ".join(f"line {node.lineno} of {cell.label}" for cell, node in handed)
        raise NotPlaced(f"Models are passed to a trainer on {places}: change the right one by hand.")
    cell, node = handed[0]
    if not torch_name(cells) and cell is not cells.cells[-1]:
        raise NotPlaced(
            f"Import torch before line {node.lineno} of {cell.label}, where the model is passed to the trainer."
        )
    return cell, node


def _handed(cells: Cells) -> Iterator[tuple[CellSource, ast.expr]]:
    """Yields the models passed to trainers, each with its cell."""
    for framework in FRAMEWORKS:
        if framework.trainer is None:
            continue
        trainers = list(cells.made_by(framework.trainer.is_it, (framework.model_argument or "model",)))
        if framework.model_argument:
            for made in newest_of(trainers):
                node = made.site.argument(framework.model_argument)
                if node is not None:
                    yield made.site.cell, node
        elif trainers:
            yield from _handed_to(cells, trainers, framework.model_method)


def _handed_to(cells: Cells, trainers: Sequence[Made], method: str) -> Iterator[tuple[CellSource, ast.expr]]:
    """Yields the models passed to a method of trainers, such as `trainer.fit(model)`."""
    fits = [(cell, call, on) for cell, call in cells.calls(method) if (on := getattr(call.func, "value", None))]
    named = {ast.unparse(target) for trainer in trainers for target in trainer.targets}
    sure = [fit for fit in fits if ast.unparse(fit[2]) in named]
    for cell, call, _ in sure or fits:  # scikit-learn's objects have a `fit` as well
        node = Site(cell, call, ("model",)).argument("model")
        if node is not None:
            yield cell, node

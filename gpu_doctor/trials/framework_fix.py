"""Settings as arguments of a framework: TrainingArguments, Lightning's Trainer, Accelerator, Fabric, skorch's nets.

Where a framework makes the loader or enters autocast itself, no line of the user's cells does it: the argument by which
the framework is told is the line to change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.cell.arguments import HIDDEN, REPLACE, Slot, set_arguments, slot
from gpu_doctor.cell.calls import Cells, Made, function_around
from gpu_doctor.cell.constructors import LOADER, is_loader, newest_of, training_loops
from gpu_doctor.cell.loop import Edits, NotPlaced
from gpu_doctor.recording import Settings, SettingValue

Given = Callable[[SettingValue], Mapping[str, str]]
"""A setting's value -> arguments as code; what is `""` is changed only where the call has it already."""


@dataclass(frozen=True)
class Framework:
    """A class of a framework whose arguments are settings."""

    name: str
    """Of the class or one it derives from."""
    packages: tuple[str, ...]
    arguments: Mapping[str, Given]
    """Knob -> what is given for it."""

    def is_it(self, meant: Any) -> bool:
        """Whether a class, or the qualified name of one, is the class or derives from it."""
        if inspect.isclass(meant):
            return any(
                one.__name__ == self.name and one.__module__.partition(".")[0] in self.packages for one in meant.__mro__
            )
        parts = meant.split(".") if isinstance(meant, str) else [""]
        return parts[-1] == self.name and parts[0] in self.packages


def _named(argument: str) -> Given:
    return lambda value: {argument: repr(value)}


def _half(bf16: str, fp16: str, off: str, argument: str) -> Given:
    return lambda value: {argument: {"bf16": bf16, "fp16": fp16}.get(str(value), off)}


def _two_switches(value: SettingValue) -> Mapping[str, str]:
    """transformers has one switch for each format, both off by default: at most one may be on."""
    return {
        **{name: "False" for name in ("bf16", "fp16") if name != value},
        **({str(value): "True"} if value in ("bf16", "fp16") else {}),
    }


FRAMEWORKS: Final = (
    Framework(
        "TrainingArguments",
        ("transformers", "trl"),
        {
            "num_workers": _named("dataloader_num_workers"),
            "batch_size": _named("per_device_train_batch_size"),
            "pin_memory": _named("dataloader_pin_memory"),
            "persistent_workers": _named("dataloader_persistent_workers"),
            "prefetch_factor": _named("dataloader_prefetch_factor"),
            "amp": _two_switches,
            "tf32": _named("tf32"),
            "compile": _named("torch_compile"),
            "fused_optimizer": lambda value: {"optim": '"adamw_torch_fused"' if value else '"adamw_torch"'},
        },
    ),
    Framework(
        "Trainer",
        ("lightning", "pytorch_lightning"),
        {"amp": _half('"bf16-mixed"', '"16-mixed"', '"32-true"', "precision")},
    ),
    Framework(
        "Fabric",
        ("lightning", "lightning_fabric"),
        {"amp": _half('"bf16-mixed"', '"16-mixed"', '"32-true"', "precision")},
    ),
    Framework("Accelerator", ("accelerate",), {"amp": _half('"bf16"', '"fp16"', '"no"', "mixed_precision")}),
    Framework(
        "NeuralNet",
        ("skorch",),
        {
            "batch_size": _named("batch_size"),
            "compile": _named("compile"),
            **{
                name: _named(f"iterator_train__{name}")
                for name in ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")
            },
        },
    ),
)
"""transformers 5, Lightning 2, accelerate 1, skorch 1 as their manuals have it."""
ONLY_IF_GIVEN: Final = {"bf16": "False", "fp16": "False"}
"""Defaults that are not written out where nothing is."""
WORKERS_ONLY: Final = {
    "dataloader_prefetch_factor": "None",
    "dataloader_persistent_workers": "False",
    "iterator_train__prefetch_factor": "None",
    "iterator_train__persistent_workers": "False",
}
"""What torch refuses to take without workers, and its value for none."""
MAKES_TRAINING: Final = ("train_dataloader", "get_train_dataloader")
"""Methods in which Lightning and transformers let a user make the training loader."""


def framework_edits(cells: Cells, settings: Settings) -> Edits | None:
    """The edits that give a framework the settings of one group; None where no framework decides them.

    Raises:
        NotPlaced: if the framework's call cannot be told, or hands its arguments on in a way not seen.
    """
    newest = cells.cells[-1:]
    if "amp" not in settings and list(training_loops(newest)):
        return None  # a loop of the user's own makes its own loaders
    for framework in FRAMEWORKS:
        if not all(name in framework.arguments for name in settings):
            continue
        made = newest_of(cells.made_by(framework.is_it, ()))
        if not made or ("num_workers" in framework.arguments and _own_loader(cells, settings)):
            continue
        if len(made) > 1:
            places = " and ".join(one.site.place for one in made)
            raise NotPlaced(f"Several calls make a {framework.name}: {places}.")
        return list(set_arguments(_slots(cells, framework, made[0], settings)))
    return None


def _slots(cells: Cells, framework: Framework, made: Made, settings: Settings) -> dict[Slot, str]:
    given = {name: text for knob, value in settings.items() for name, text in framework.arguments[knob](value).items()}
    if settings.get("num_workers") == 0:
        given = {**WORKERS_ONLY, **given}
    found: dict[Slot, str] = {}
    for name, text in given.items():
        optional = ONLY_IF_GIVEN.get(name) == text or (name in WORKERS_ONLY and WORKERS_ONLY[name] == text)
        one = slot(cells, made, name)
        if optional and one.kind != REPLACE:
            continue
        if one.kind == HIDDEN:
            raise NotPlaced(f"{one.site.place[0].upper()}{one.site.place[1:]} hands {name} on in a way not seen here.")
        found[one] = text
    if not found:
        raise NotPlaced(f"{made.site.place[0].upper()}{made.site.place[1:]} asks for nothing of the kind.")
    return found


def _own_loader(cells: Cells, settings: Settings) -> bool:
    """Whether the training loader is made by a method that the framework calls for it: then that is the place."""
    makers = cells.made_by(is_loader, LOADER) if "num_workers" in settings or "batch_size" in settings else ()
    return any(getattr(function_around(one.site.cell, one.site.call), "name", "") in MAKES_TRAINING for one in makers)

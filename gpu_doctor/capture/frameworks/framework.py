"""The type for facts about a training framework; no framework is imported for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gpu_doctor.recording import SettingValue

Given: TypeAlias = Callable[[SettingValue], Mapping[str, str]]
"""Function that turns a knob's value into arguments, as code."""


@dataclass(frozen=True)
class Class:
    """A class of a framework, identified by its name and its packages."""

    name: str
    """Name of the class, or of a class that it derives from."""
    packages: tuple[str, ...]
    """Packages that the class may come from."""
    settings: Mapping[str, Given] = field(default_factory=dict)
    """For each knob, the function that gives the class's arguments."""

    def is_it(self, candidate: Any) -> bool:
        """True if `candidate`, a class or its qualified name, is this class; a class may also derive from it."""
        if inspect.isclass(candidate):
            return any(
                base.__name__ == self.name and base.__module__.partition(".")[0] in self.packages
                for base in candidate.__mro__
            )
        parts = candidate.split(".") if isinstance(candidate, str) else [""]
        return parts[-1] == self.name and parts[0] in self.packages


@dataclass(frozen=True)
class Framework:
    """Facts about one framework. All fields except the first two are optional."""

    name: str
    """Name as the framework's users write it."""
    packages: tuple[str, ...]
    classes: tuple[Class, ...] = ()
    """Classes whose arguments are settings of knobs."""
    boxes: tuple[str, ...] = ()
    """Names of module classes that only contain the modules that steps call: their own `forward` raises."""
    optimizers: tuple[tuple[str, str], ...] = ()
    """Module and name of optimizers that are not torch's, but have its `step`, `zero_grad` and `param_groups`."""
    trainer: Class | None = None
    """Class that a model is passed to for training."""
    model_argument: str = ""
    """Argument of the trainer that takes the model."""
    model_method: str = ""
    """Method of the trainer that takes the model, if no argument does."""
    makes_training_loader: tuple[str, ...] = ()
    """Methods in which a user creates the training loader."""


def named(argument: str) -> Given:
    """Returns the function that passes a knob's value as one argument."""
    return lambda value: {argument: repr(value)}


def half(bf16: str, fp16: str, off: str, argument: str) -> Given:
    """Returns the function that passes a number format as one argument, in the framework's spelling."""
    return lambda value: {argument: {"bf16": bf16, "fp16": fp16}.get(str(value), off)}

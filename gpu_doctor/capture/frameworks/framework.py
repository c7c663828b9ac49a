"""What is known of a training framework, as data: none is imported for it, it is looked up where it is in use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gpu_doctor.recording import SettingValue

Given: TypeAlias = Callable[[SettingValue], Mapping[str, str]]
"""A knob's value -> arguments as code."""


@dataclass(frozen=True)
class Class:
    """A class of a framework, told by its name and where it comes from."""

    name: str
    """Of the class or one it derives from."""
    packages: tuple[str, ...]
    """Packages that it may come from."""
    settings: Mapping[str, Given] = field(default_factory=dict)
    """Knob -> the arguments by which the class is told."""

    def is_it(self, meant: Any) -> bool:
        """Whether a class, or the qualified name of one, is the class or derives from it."""
        if inspect.isclass(meant):
            return any(
                one.__name__ == self.name and one.__module__.partition(".")[0] in self.packages for one in meant.__mro__
            )
        parts = meant.split(".") if isinstance(meant, str) else [""]
        return parts[-1] == self.name and parts[0] in self.packages


@dataclass(frozen=True)
class Framework:
    """What the product needs to know of one framework. Every field but the first two may be left out."""

    name: str
    """As its users write it."""
    packages: tuple[str, ...]
    classes: tuple[Class, ...] = ()
    """Classes whose arguments are settings."""
    boxes: tuple[str, ...] = ()
    """Classes of modules that only hold what steps call: their own `forward` raises."""
    optimizers: tuple[tuple[str, str], ...] = ()
    """Module and name of optimizers that are none of torch's: they have its `step`, `zero_grad` and `param_groups`."""
    trainer: Class | None = None
    """What a model is handed to."""
    model_argument: str = ""
    """The trainer's argument that takes the model,"""
    model_method: str = ""
    """or its method that does."""
    makes_training_loader: tuple[str, ...] = ()
    """Methods in which a user makes the training loader."""


def named(argument: str) -> Given:
    """The value as one argument."""
    return lambda value: {argument: repr(value)}


def half(bf16: str, fp16: str, off: str, argument: str) -> Given:
    """A number format as one argument, each spelled as the framework does."""
    return lambda value: {argument: {"bf16": bf16, "fp16": fp16}.get(str(value), off)}

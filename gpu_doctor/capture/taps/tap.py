"""The interface of a tap, a listener on one part of the training loop during one run, and the state that taps share."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from gpu_doctor.capture.describe.names import named
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.taps.found_models import FoundModels
from gpu_doctor.capture.taps.moments import Moments
from gpu_doctor.capture.taps.parameters import Parameters


@dataclass
class TapScope(Moments):
    """State that the taps of one run share."""

    patches: Patches
    namespace: MutableMapping[str, Any] | None = None
    """Names that the observed code runs with, None for a `watch()` block."""
    accelerated: bool = False
    """True if there is a device other than the CPU to copy to and to wait for."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Fact `flags` of the setup."""
    models: FoundModels = field(default_factory=FoundModels)
    """The outermost modules found by name or by a call, with their listeners."""
    optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    """Optimizers that were made or used in this run."""
    owned: Parameters = field(default_factory=Parameters)
    """Parameters of every optimizer used so far, or of a loop that updates them by hand."""
    steps: Counter[int] = field(default_factory=Counter)
    """Number of steps of each optimizer, by its id, counted while `stepped` has listeners."""
    ends: ExitStack = field(default_factory=ExitStack)
    """Functions to call when the run is over, the last one first."""

    def owners(self) -> set[int]:
        """Returns the ids of all optimizers' parameters: of those made or used in this run, or found by a name."""
        known = [optimizer for ref in self.optimizers if (optimizer := ref()) is not None]
        everyone = (*known, *named(self.namespace, torch.optim.Optimizer))
        groups = (group for optimizer in everyone for group in vars(optimizer).get("param_groups", ()))
        return {id(p) for group in groups for p in group["params"]}

    def know(self, optimizer: torch.optim.Optimizer) -> None:
        """Stores a weak reference to an optimizer."""
        known = [ref for ref in self.optimizers if (other := ref()) is not None and other is not optimizer]
        self.optimizers[:] = [*known, weakref.ref(optimizer)]

    def at_end(self, end: Callable[[], None], failed: str = "The data of a tap could not be read") -> None:
        """Has `end` called when the run is over. An error in it leaves a note that begins with `failed`."""

        def ended() -> None:
            try:
                end()
            except Exception as error:
                self.recorder.note(f"{failed}: {error}")

        self.ends.callback(ended)

    def add_fact(
        self, name: str, read: Callable[[], Any], finish: Callable[[], None] = lambda: None, error_message: str = ""
    ) -> None:
        """Adds a fact to the setup.

        Args:
            name: Name of its field in `Setup`.
            read: Returns the fact; called during the run and once more when the run is over.
            finish: Called before the fact is read for the last time.
            error_message: Start of the note that is left if either of them raises at the end.
        """
        facts = self.recorder.facts
        facts[name] = read

        def freeze() -> None:
            facts[name] = None
            finish()
            facts[name] = read()

        self.at_end(freeze, error_message or f"The {name.replace('_', ' ')} could not be read")


Tap: TypeAlias = Callable[[TapScope], None]
"""Function that installs a tap's listeners; the scope's patches or a function passed to `at_end` remove them."""

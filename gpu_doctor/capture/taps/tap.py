"""The form of a tap: a listener on one seam of the training loop, on for one run."""

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
    """What the taps of one run share."""

    patches: Patches
    namespace: MutableMapping[str, Any] | None = None
    """Where the code runs, None for a `watch()` block."""
    accelerated: bool = False
    """A device other than the CPU is there to copy to and to wait for."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Fact `flags` of the setup."""
    models: FoundModels = field(default_factory=FoundModels)
    """The outermost modules that are known, by names or because they were called, with their listeners."""
    optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    """Those alive that were made or met in this run."""
    owned: Parameters = field(default_factory=Parameters)
    """Parameters of every optimizer met so far, or of a loop that updates them by hand."""
    steps: Counter[int] = field(default_factory=Counter)
    """How often each optimizer, by its id, has stepped while somebody of `stepped` looked."""
    ends: ExitStack = field(default_factory=ExitStack)
    """What is done when the run is over, the last first."""

    def owners(self) -> set[int]:
        """Ids of the parameters of every optimizer that was made or met in this run, or that a name leads to."""
        known = [one for ref in self.optimizers if (one := ref()) is not None]
        everyone = (*known, *named(self.namespace, torch.optim.Optimizer))
        groups = (group for one in everyone for group in vars(one).get("param_groups", ()))
        return {id(p) for group in groups for p in group["params"]}

    def know(self, optimizer: torch.optim.Optimizer) -> None:
        """Remembers an optimizer for as long as it lives."""
        known = [ref for ref in self.optimizers if (one := ref()) is not None and one is not optimizer]
        self.optimizers[:] = [*known, weakref.ref(optimizer)]

    def at_end(self, end: Callable[[], None], failed: str = "What a tap has heard could not be read") -> None:
        """Is called when the run is over. What it raises is noted, with `failed` as the sentence's begin."""

        def ended() -> None:
            try:
                end()
            except Exception as error:
                self.recorder.note(f"{failed}: {error}")

        self.ends.callback(ended)

    def add_fact(
        self, name: str, read: Callable[[], Any], finish: Callable[[], None] = lambda: None, error_message: str = ""
    ) -> None:
        """Adds a fact of the setup.

        Args:
            name: its field of `Setup`.
            read: returns it, while the run goes on and once more when the run is over.
            finish: is called before it is read for the last time.
            error_message: begins the note that is left where either of them raises at the end.
        """
        facts = self.recorder.facts
        facts[name] = read

        def freeze() -> None:
            facts[name] = None
            finish()
            facts[name] = read()

        self.at_end(freeze, error_message or f"The {name.replace('_', ' ')} could not be read")


Tap: TypeAlias = Callable[[TapScope], None]
"""Puts its listeners up; what takes them off is `TapScope.patches` or was handed to `TapScope.at_end`."""

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
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.evaluations import Evaluations
from gpu_doctor.capture.taps.found_models import FoundModels
from gpu_doctor.capture.taps.parameters import Parameters


class Listeners(list[Callable[..., Any]]):
    """Who is told of one kind of moment of the loop."""

    def join(self, hear: Callable[..., Any]) -> None:
        """It is told from now on, once a moment."""
        if hear not in self:
            self.append(hear)

    def leave(self, hear: Callable[..., Any]) -> None:
        """It is told no more, if it was."""
        if hear in self:
            self.remove(hear)

    def tell(self, note: Callable[[str], None], failed: str, *given: Any, stay: bool = False) -> None:
        """The moment is there: what a listener raises is noted, and the others are told all the same.

        What is given is the user's own, and so may be what reads its attributes.

        Args:
            note: takes a sentence.
            failed: how it begins.
            *given: to the listeners.
            stay: who has failed is told of the next moment too.
        """
        for hear in tuple(self):  # some take themselves out
            try:
                hear(*given)
            except Exception as error:
                if not stay:
                    self.leave(hear)
                note(f"{failed}: {error}")


@dataclass
class TapScope:
    """What the taps of one run share."""

    recorder: Recorder
    patches: Patches
    namespace: MutableMapping[str, Any] | None = None
    """Where the code runs, None for a `watch()` block."""
    accelerated: bool = False
    """A device other than the CPU is there to copy to and to wait for."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Fact `flags` of the setup."""
    pulled: Listeners = field(default_factory=Listeners)
    """Called when a loader is first iterated."""
    optimized: Listeners = field(default_factory=Listeners)
    """Called with an optimizer before its first step."""
    models: FoundModels = field(default_factory=FoundModels)
    """The outermost modules that are known, by names or because they were called, with their listeners."""
    called: Listeners = field(default_factory=Listeners)
    """Called with an outermost module before its first call."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    found: Listeners = field(default_factory=Listeners)
    """Called when a call has shown further modules, after optimizers were met: the facts of the model are to be read
    anew."""
    made: Listeners = field(default_factory=Listeners)
    """Called with an optimizer that the training thread has just made."""
    optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    """Those alive that were made or met in this run."""
    owned: Parameters = field(default_factory=Parameters)
    """Parameters of every optimizer met so far, or of a loop that updates them by hand."""
    heard: Listeners = field(default_factory=Listeners)
    """Called after every forward of an outermost module, while somebody looks: module, whether it is trained, its
    arguments, named arguments and output. Empty most of the time."""
    stepped: Listeners = field(default_factory=Listeners)
    """Called after every optimizer step while something is still looked for; empty most of the time."""
    steps: Counter[int] = field(default_factory=Counter)
    """How often each optimizer, by its id, has stepped while somebody of `stepped` looked."""
    differentiated: Listeners = field(default_factory=Listeners)
    """Called with the loss before a backward pass of the training thread, while somebody looks: empty most of the
    time."""
    replayed: Listeners = field(default_factory=Listeners)
    """Called before a CUDA graph of the loop's own is launched, while somebody looks."""
    backed: Listeners = field(default_factory=Listeners)
    """Called when a backward pass of the training thread has ended, still within its phase."""
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

    def forget(self) -> None:
        """Nobody listens any more: what listens holds the model and, through the scope, itself."""
        seldom = (self.pulled, self.optimized, self.called, self.found, self.made)
        for listeners in (*seldom, self.heard, self.stepped, self.differentiated, self.replayed, self.backed):
            listeners.clear()


Tap: TypeAlias = Callable[[TapScope], None]
"""Puts its listeners up; what takes them off is `TapScope.patches` or was handed to `TapScope.at_end`."""

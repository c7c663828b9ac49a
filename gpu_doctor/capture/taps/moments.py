"""The moments of a training loop, and who is told of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.evaluations import Evaluations


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
class Moments:
    """The listeners of one run, a list for each kind of moment."""

    recorder: Recorder
    _: KW_ONLY
    pulled: Listeners = field(default_factory=Listeners)
    """Called when a loader is first iterated."""
    optimized: Listeners = field(default_factory=Listeners)
    """Called with an optimizer before its first step."""
    called: Listeners = field(default_factory=Listeners)
    """Called with an outermost module before its first call."""
    evaluations: Evaluations = field(default_factory=Evaluations)
    found: Listeners = field(default_factory=Listeners)
    """Called when a call has shown further modules, after optimizers were met: the facts of the model are to be read
    anew."""
    made: Listeners = field(default_factory=Listeners)
    """Called with an optimizer that the training thread has just made."""
    heard: Listeners = field(default_factory=Listeners)
    """Called after every forward of an outermost module, while somebody looks: module, whether it is trained, its
    arguments, named arguments and output. Empty most of the time."""
    stepped: Listeners = field(default_factory=Listeners)
    """Called after every optimizer step while something is still looked for; empty most of the time."""
    differentiated: Listeners = field(default_factory=Listeners)
    """Called with the loss before a backward pass of the training thread, while somebody looks: empty most of the
    time."""
    replayed: Listeners = field(default_factory=Listeners)
    """Called before a CUDA graph of the loop's own is launched, while somebody looks."""
    backed: Listeners = field(default_factory=Listeners)
    """Called when a backward pass of the training thread has ended, still within its phase."""

    def forget(self) -> None:
        """Nobody listens any more: what listens holds the model and, through the scope, itself."""
        seldom = (self.pulled, self.optimized, self.called, self.found, self.made)
        for listeners in (*seldom, self.heard, self.stepped, self.differentiated, self.replayed, self.backed):
            listeners.clear()

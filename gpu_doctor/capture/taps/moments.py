"""The moments of a training loop that taps can listen to, such as a forward's end, and the listeners of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.evaluations import Evaluations


class Listeners(list[Callable[..., Any]]):
    """Functions to call at one kind of moment of the loop."""

    def join(self, listener: Callable[..., Any]) -> None:
        """Adds a listener, unless it is there already."""
        if listener not in self:
            self.append(listener)

    def leave(self, listener: Callable[..., Any]) -> None:
        """Removes a listener, if it is there."""
        if listener in self:
            self.remove(listener)

    def notify(self, note: Callable[[str], None], failed: str, *given: Any, stay: bool = False) -> None:
        """Calls all listeners. An error in one leaves a note, and the others are called all the same.

        Listeners may fail because the arguments are the user's objects, whose attributes may raise.

        Args:
            note: Takes a sentence.
            failed: Start of the sentence; the error follows.
            *given: Arguments for the listeners.
            stay: True if a listener that fails is called again next time; else it is removed.
        """
        for listener in tuple(self):  # some remove themselves
            try:
                listener(*given)
            except Exception as error:
                if not stay:
                    self.leave(listener)
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
    """Called when a call has shown a further module after optimizers were seen: the model's facts are read again."""
    made: Listeners = field(default_factory=Listeners)
    """Called with an optimizer that the training thread has just made."""
    forwarded: Listeners = field(default_factory=Listeners)
    """Called after every forward of an outermost module, with the module, True if it is trained, its positional and
    named arguments, and its output. Empty most of the time."""
    stepped: Listeners = field(default_factory=Listeners)
    """Called after every optimizer step, as long as something is searched for; empty most of the time."""
    differentiated: Listeners = field(default_factory=Listeners)
    """Called with the loss before a backward pass on the training thread; empty most of the time."""
    replayed: Listeners = field(default_factory=Listeners)
    """Called before the loop launches a CUDA graph of its own; empty most of the time."""
    backed: Listeners = field(default_factory=Listeners)
    """Called when a backward pass on the training thread has ended, still within its phase."""

    def forget(self) -> None:
        """Removes all listeners when the run is over: they hold the model and, through the scope, themselves."""
        seldom = (self.pulled, self.optimized, self.called, self.found, self.made)
        for listeners in (*seldom, self.forwarded, self.stepped, self.differentiated, self.replayed, self.backed):
            listeners.clear()

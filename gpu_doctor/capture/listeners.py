"""Callbacks for the results of a fold: each is registered for one kind of result, and called on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpu_doctor.capture.found import Found, Place, PlacedSample

Calls: TypeAlias = Mapping[Any, Sequence[float]]
"""The costly calls of a span, see `Span.calls`."""
BEAT_S: Final = 0.5
"""Shortest time between two calls of the view, in seconds."""
LONGEST_BEAT_S: Final = 5.0
BEAT_SHARE: Final = 0.01
"""Share of the training thread that drawing may take: a call that took t is followed by the next t / 0.01 later."""


class Listeners:
    """The callbacks of one run."""

    def __init__(self) -> None:
        self.of_steps: list[Callable[[int], None]] = []
        self._copies: list[Callable[[int, int, Any, Place], None]] = []
        self._calls: list[Callable[[Calls], None]] = []
        self._stack_samples: list[Callable[[PlacedSample], None]] = []
        self._budget: list[Callable[[], None]] = []
        self._beat: Callable[[], None] | None = None
        self._next_beat = 0

    def on_steps(self, callback: Callable[[int], None]) -> None:
        """Registers a callback for steps that ended, several at once; it gets the end of the last step, in ns."""
        self.of_steps.append(callback)

    def off_steps(self, callback: Callable[[int], None]) -> None:
        """Removes a callback for steps."""
        self.of_steps.remove(callback)

    def on_copies(self, callback: Callable[[int, int, Any, Place], None]) -> None:
        """Registers a callback for copies to or from a device, except in evaluations; its arguments are `Copied`'s."""
        self._copies.append(callback)

    def on_calls(self, callback: Callable[[Calls], None]) -> None:
        """Registers a callback for the costly calls of each span of a step that has ended."""
        self._calls.append(callback)

    def on_stack_samples(self, callback: Callable[[PlacedSample], None]) -> None:
        """Registers a callback for stack samples whose phase is known."""
        self._stack_samples.append(callback)

    def on_budget_spent(self, callback: Callable[[], None]) -> None:
        """Registers a callback for the end of the budget's last step, before the loop is left."""
        self._budget.append(callback)

    def on_beat(self, callback: Callable[[], None]) -> None:
        """Sets the callback of a view that no other thread can reach; it is called at most twice a second."""
        self._beat = callback

    def report_found(self, found: Found) -> None:
        """Calls the callbacks for costly calls, copies and stack samples of a fold."""
        for step in found.steps:
            self.report_calls(*step.calls)
        for copy in found.copies:
            for callback in self._copies:
                callback(*copy)
        for sample in found.stack_samples:
            for on_sample in self._stack_samples:
                on_sample(sample)

    def report_calls(self, *calls: Calls | None) -> None:
        """Calls the callbacks for costly calls with those of each ended span; None = the span has none."""
        for sums in calls:
            if sums is not None:
                for callback in self._calls:
                    callback(sums)

    def report_steps(self, end_ns: int) -> None:
        """Calls the callbacks for steps; `end_ns` is the end of the last one."""
        for callback in tuple(self.of_steps):
            callback(end_ns)

    def report_budget_spent(self) -> None:
        """Calls the callbacks for the end of the budget."""
        for callback in self._budget:
            callback()

    def beat(self, now: int, clock: Callable[[], int]) -> None:
        """Calls the view's callback if that is due.

        Args:
            now: end of the last step, in ns.
            clock: host clock, in ns.
        """
        if self._beat is None or now < self._next_beat:
            return
        begin = clock()
        self._beat()
        took_s = (clock() - begin) * 1e-9
        self._next_beat = now + round(1e9 * max(BEAT_S, min(took_s / BEAT_SHARE, LONGEST_BEAT_S)))

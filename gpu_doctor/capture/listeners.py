"""Callbacks for the results of a fold: each is registered for one kind of result, and called on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpu_doctor.capture.found import Found, Place, Seen

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
        self._looks: list[Callable[[Seen], None]] = []
        self._budget: list[Callable[[], None]] = []
        self._beat: Callable[[], None] | None = None
        self._next_beat = 0

    def hear_steps(self, hear: Callable[[int], None]) -> None:
        """Registers a callback for steps that ended, several at once; it gets the end of the last step, in ns."""
        self.of_steps.append(hear)

    def hear_no_steps(self, hear: Callable[[int], None]) -> None:
        """Removes a callback for steps."""
        self.of_steps.remove(hear)

    def hear_copies(self, hear: Callable[[int, int, Any, Place], None]) -> None:
        """Registers a callback for copies to or from a device, except in evaluations; its arguments are `Copied`'s."""
        self._copies.append(hear)

    def hear_calls(self, hear: Callable[[Calls], None]) -> None:
        """Registers a callback for the costly calls of each span of a step that has ended."""
        self._calls.append(hear)

    def hear_looks(self, hear: Callable[[Seen], None]) -> None:
        """Registers a callback for stack samples whose phase is known."""
        self._looks.append(hear)

    def hear_budget(self, hear: Callable[[], None]) -> None:
        """Registers a callback for the end of the budget's last step, before the loop is left."""
        self._budget.append(hear)

    def hear_beats(self, hear: Callable[[], None]) -> None:
        """Sets the callback of a view that no other thread can reach; it is called at most twice a second."""
        self._beat = hear

    def tell_found(self, found: Found) -> None:
        """Calls the callbacks for costly calls, copies and stack samples of a fold."""
        for step in found.steps:
            self.tell_calls(*step.calls)
        for copy in found.copies:
            for hear in self._copies:
                hear(*copy)
        for look in found.looks:
            for see in self._looks:
                see(look)

    def tell_calls(self, *calls: Calls | None) -> None:
        """Calls the callbacks for costly calls with those of each ended span; None = the span has none."""
        for sums in calls:
            if sums is not None:
                for hear in self._calls:
                    hear(sums)

    def tell_steps(self, end_ns: int) -> None:
        """Calls the callbacks for steps; `end_ns` is the end of the last one."""
        for hear in tuple(self.of_steps):
            hear(end_ns)

    def tell_budget(self) -> None:
        """Calls the callbacks for the end of the budget."""
        for hear in self._budget:
            hear()

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

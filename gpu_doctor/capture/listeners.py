"""Who hears what a fold has found: each registers for one kind of it, and is called on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from gpu_doctor.capture.found import Found, Place, Seen

Calls: TypeAlias = Mapping[Any, Sequence[float]]
"""The costly calls of a span, see `Span.calls`."""
BEAT_S: Final = 0.5
LONGEST_BEAT_S: Final = 5.0
BEAT_SHARE: Final = 0.01
"""Part of the training thread that drawing may take: after a beat that took t, the next comes t / 0.01 later."""


class Listeners:
    """The listeners of one run."""

    def __init__(self) -> None:
        self.of_steps: list[Callable[[int], None]] = []
        self._copies: list[Callable[[int, int, Any, Place], None]] = []
        self._calls: list[Callable[[Calls], None]] = []
        self._looks: list[Callable[[Seen], None]] = []
        self._budget: list[Callable[[], None]] = []
        self._beat: Callable[[], None] | None = None
        self._next_beat = 0

    def hear_steps(self, hear: Callable[[int], None]) -> None:
        """Is called when steps have ended, several at once, with the last one's end."""
        self.of_steps.append(hear)

    def hear_no_steps(self, hear: Callable[[int], None]) -> None:
        """Is called for steps no more."""
        self.of_steps.remove(hear)

    def hear_copies(self, hear: Callable[[int, int, Any, Place], None]) -> None:
        """Is called for every copy to or from a device that is no evaluation's, see `Copied`."""
        self._copies.append(hear)

    def hear_calls(self, hear: Callable[[Calls], None]) -> None:
        """Is called for the costly calls of each span of a step that has ended."""
        self._calls.append(hear)

    def hear_looks(self, hear: Callable[[Seen], None]) -> None:
        """Is called when it is known in which phase a look of the line sampler fell."""
        self._looks.append(hear)

    def hear_budget(self, hear: Callable[[], None]) -> None:
        """Is called when the last step of the budget has ended, before the loop is left."""
        self._budget.append(hear)

    def hear_beats(self, hear: Callable[[], None]) -> None:
        """Is called twice a second at most, where a view cannot be reached from another thread."""
        self._beat = hear

    def tell_found(self, found: Found) -> None:
        """A fold has found this."""
        for step in found.steps:
            self.tell_calls(*step.calls)
        for copy in found.copies:
            for hear in self._copies:
                hear(*copy)
        for look in found.looks:
            for see in self._looks:
                see(look)

    def tell_calls(self, *calls: Calls | None) -> None:
        """Spans that have ended had these costly calls, None = none."""
        for one in calls:
            if one is not None:
                for hear in self._calls:
                    hear(one)

    def tell_steps(self, end_ns: int) -> None:
        """Steps have ended."""
        for hear in tuple(self.of_steps):
            hear(end_ns)

    def tell_budget(self) -> None:
        """The last step of the budget has ended."""
        for hear in self._budget:
            hear()

    def beat(self, now: int, clock: Callable[[], int]) -> None:
        """Steps have ended: the view is called if that is due.

        Args:
            now: when the last one ended.
            clock: of the host, ns.
        """
        if self._beat is None or now < self._next_beat:
            return
        begin = clock()
        self._beat()
        took_s = (clock() - begin) * 1e-9
        self._next_beat = now + round(1e9 * max(BEAT_S, min(took_s / BEAT_SHARE, LONGEST_BEAT_S)))

"""Copies to the device by its own clock: how long they took of a gap.

The host knows what a copy took that it waited for. One out of pinned memory only queues it: the device copies later,
behind the work it still has, and that time is the copy's, not that of the wait for the batch.
"""

from __future__ import annotations

from typing import Any, Final

from gpu_doctor.capture.gpu.clock import QuietClock

MOST_STRETCHES: Final = 8
"""Of one step; what comes later belongs to the last one."""
TOGETHER_NS: Final = 50_000
"""Copies that follow each other so soon on the host are one stretch: inputs and labels cost one mark more, not two."""


class CopyMarks:
    """Stretches of copies from a step's begin to its first work, a mark at the begin and the end of each."""

    __slots__ = ("_begun", "_ended_ns", "_stretches")

    def __init__(self) -> None:
        self._stretches: list[list[Any]] = []
        """Begin and end; without an end while a copy is issued, and where that raised."""
        self._begun = False
        """A copy is being issued, or one has raised."""
        self._ended_ns = 0

    def __bool__(self) -> bool:
        return bool(self._stretches)

    def begin(self, clock: QuietClock, now: int) -> None:
        """A copy is about to be issued; `now`: ns of the host clock."""
        stretches, self._begun = self._stretches, True
        if stretches and len(stretches[-1]) < 2:
            clock.free(*stretches.pop())
        if stretches and (now - self._ended_ns < TOGETHER_NS or len(stretches) >= MOST_STRETCHES):
            return
        mark = clock.mark()
        if mark is not None:
            stretches.append([mark])

    def end(self, clock: QuietClock, now: int) -> None:
        """A copy was issued, maybe one that was not announced by `begin`: the host has waited for that."""
        begun, self._begun = self._begun, False
        if not begun or not self._stretches or (mark := clock.mark()) is None:
            return
        stretch = self._stretches[-1]
        clock.free(*stretch[1:])
        stretch[1:] = [mark]
        self._ended_ns = now

    def seconds(self, clock: QuietClock, before: Any, gap_s: float) -> float:
        """How much of the gap, which begins at the mark `before`, the device has copied.

        Copies on another stream may have begun before the gap, and may go on after it.
        """
        total = 0.0
        for stretch in self._stretches:
            if len(stretch) < 2 or not clock.done(stretch[0]):
                continue
            begin_s = max(clock.seconds(before, stretch[0]), 0.0)
            end_s = min(clock.seconds(before, stretch[1]), gap_s) if clock.done(stretch[1]) else gap_s
            if end_s > begin_s:  # neither is NaN: the copy went to this device
                total += end_s - begin_s
        return min(total, gap_s)

    def marks(self) -> list[Any]:
        """All, to be freed."""
        return [mark for stretch in self._stretches for mark in stretch]

"""What a device's own clock offers, and a fence around it: its errors end here, and what it costs is counted."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

_NAN: Final = float("nan")
SETTLED_NS: Final = 20_000
"""An idle device has passed a mark long before it is so old."""
SURE_NS: Final = 200_000
"""A mark that was passed before it was so old tells well enough how far the device is."""
RENEW_NS: Final = 1_000_000
"""How far the device is is asked again after so long: each step that takes longer has an answer of its own."""
RECENT: Final = 4
"""Marks that are remembered: one of them is old enough, as a rule."""


class DeviceClock(Protocol):
    """A device that marks can be put to: CUDA events, or a simulated queue in tests.

    Marks go to the compute stream, the one of the newest forward or optimizer step that was told by `follow`: a
    prefetcher asks for batches, and copies them, while another stream is the current one.
    """

    def ready(self) -> bool:
        """False while nothing may be put into the queue or asked of it: a graph is being captured."""
        ...

    def follow(self) -> None:
        """The current stream is the compute stream from now on."""
        ...

    def aside(self) -> bool:
        """True if the current stream is another one than the compute stream."""
        ...

    def mark(self, current: bool = False) -> Any:
        """Puts a mark into the queue of the compute stream, or of the current one."""
        ...

    def done(self, mark: Any) -> bool:
        """True if the device has passed the mark; does not wait."""
        ...

    def idle(self) -> bool:
        """True if the device has done all that the compute stream was given; does not wait."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two marks; NaN if one was not passed yet, or they were put to two devices."""
        ...

    def free(self, mark: Any) -> None:
        """Gives a mark back for reuse."""
        ...


class Put(NamedTuple):
    """A mark that was put into the device's queue."""

    mark: Any
    """None where none could be put: a graph was being captured, or the clock has failed."""
    at_ns: int
    """Host clock right before it was put: the device cannot have passed it earlier."""
    spent_ns: int = 0
    """What putting it, and asking how far the device is, took of the host."""
    idle: bool = False
    """The compute stream was asked, and had nothing left to do."""
    aside: bool = False
    """It was put to another stream than the compute stream."""
    passed: Any = None
    """An earlier mark that the device was found to have passed by now; None = not asked, or not passed."""


class QuietClock:
    """A DeviceClock that never raises: with the first error it is off for good."""

    def __init__(
        self,
        device: DeviceClock,
        failed: Callable[[Exception], None] | None = None,
        host: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Args: device: the clock. failed: hears of its first error. host: clock in ns for what it all costs."""
        self._device, self._failed, self._host = device, failed, host
        self.off = False
        """An error has ended it."""
        self.spent_ns = 0
        """What marks and readings have cost the host."""
        self._recent: deque[tuple[Any, int]] = deque(maxlen=RECENT)
        """The last marks on the compute stream, and when they were put."""
        self._due_ns = 0
        """From when on it is asked how far the device is."""

    def ready(self) -> bool:
        """False while a graph is captured, and once the clock is off."""
        return bool(self._asked(self._device.ready, otherwise=False))

    def mark(self, follow: bool = False, current: bool = False) -> Put:
        """Puts a mark, and asks how far the device is where that was not found of late.

        Args:
            follow: the current stream is the compute stream from now on.
            current: the mark goes to the current stream instead of the compute stream.
        """
        begin = at = self._host()
        mark, idle, aside, passed = None, False, False, None
        if self.ready():
            if follow:
                self._asked(self._device.follow)
            aside = current and bool(self._asked(self._device.aside, otherwise=False))
            if not aside and begin >= self._due_ns:
                idle, passed = self._reached(begin)
            at = self._host()
            mark = self._asked(self._device.mark, current)
            if not aside:
                self._recent.append((mark, at))
        spent = self._host() - begin
        self.spent_ns += spent
        return Put(mark, at, spent, idle, aside, passed)

    def _reached(self, now: int) -> tuple[bool, Any]:
        """Whether the compute stream is empty, and the newest mark that an idle device has passed, if it was passed."""
        known, put_ns = next((one for one in reversed(self._recent) if now - one[1] >= SETTLED_NS), (None, 0))
        if known is not None and not self.done(known):
            return False, None
        idle = bool(self._asked(self._device.idle, otherwise=False))
        if idle or (known is not None and now - put_ns <= SURE_NS):
            self._due_ns = now + RENEW_NS
        return idle, known

    def done(self, mark: Any) -> bool:
        """Whether the device has passed the mark."""
        return bool(self._asked(self._device.done, mark, otherwise=False))

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks, or NaN."""
        return float(self._asked(self._device.seconds, begin, end, otherwise=_NAN))

    def free(self, *marks: Any) -> None:
        """Gives marks back; None is no mark."""
        for mark in marks:
            if mark is None:
                continue
            if self._recent and any(mark is one for one, _ in self._recent):
                self._recent = deque((pair for pair in self._recent if pair[0] is not mark), RECENT)
            self._asked(self._device.free, mark)

    def _asked(self, ask: Callable[..., Any], *given: Any, otherwise: Any = None) -> Any:
        """What the device says; `otherwise` where it fails, and from then on."""
        if self.off:
            return otherwise
        try:
            return ask(*given)
        except Exception as error:
            self.off = True
            if self._failed is not None:
                self._failed(error)
            return otherwise

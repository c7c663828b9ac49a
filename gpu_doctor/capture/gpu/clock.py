"""The interface of a device's clock, and a wrapper that catches its errors and counts its cost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

_NAN: Final = float("nan")
SETTLED_NS: Final = 20_000
"""Age of a mark, in ns, that an idle device has surely passed."""
SURE_NS: Final = 200_000
"""Greatest age, in ns, at which a passed mark still shows precisely enough how far the device is."""
RENEW_NS: Final = 1_000_000
"""Shortest time, in ns, between two queries of how far the device is: each longer step has its own answer."""
RECENT: Final = 4
"""Number of newest marks that are remembered: usually one of them is old enough."""


class DeviceClock(Protocol):
    """A device whose queue takes marks: CUDA events, or a simulated queue in tests.

    Marks go to the compute stream: the stream of the newest forward or optimizer step, as set by `follow`. The current
    stream may be another one, as when a prefetcher requests batches and copies them.
    """

    def ready(self) -> bool:
        """Returns False while the queue must not be used, because a graph is being captured."""
        ...

    def follow(self) -> None:
        """Makes the current stream the compute stream from now on."""
        ...

    def aside(self) -> bool:
        """Returns True if the current stream is not the compute stream."""
        ...

    def mark(self, current: bool = False) -> Any:
        """Puts a mark into the queue of the compute stream, or of the current one."""
        ...

    def done(self, mark: Any) -> bool:
        """Returns True if the device has passed the mark; does not wait."""
        ...

    def idle(self) -> bool:
        """Returns True if the compute stream has no work left; does not wait."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Returns the device seconds between two marks; NaN if one was not passed yet, or they are on two devices."""
        ...

    def free(self, mark: Any) -> None:
        """Gives a mark back for reuse."""
        ...


class Put(NamedTuple):
    """A mark that was put into the device's queue, and what was known of the device then."""

    mark: Any
    """The mark; None if a graph was being captured, or the clock has failed."""
    at_ns: int
    """Host time right before it was put, in ns: the device cannot have passed it earlier."""
    spent_ns: int = 0
    """Host time that putting the mark and querying the device took, in ns."""
    idle: bool = False
    """True if the compute stream was queried and had no work left."""
    aside: bool = False
    """True if the mark was put to another stream than the compute stream."""
    passed: Any = None
    """Earlier mark that the device was found to have passed; None = not queried, or not passed."""


class QuietClock:
    """Wraps a DeviceClock so that it never raises: the first error switches it off for good."""

    def __init__(
        self,
        device: DeviceClock,
        failed: Callable[[Exception], None] | None = None,
        host: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Args: device: the clock. failed: called with its first error. host: host clock in ns, for our cost."""
        self._device, self._failed, self._host = device, failed, host
        self.off = False
        """True once an error has switched the clock off."""
        self.spent_ns = 0
        """Host time that marks and readings have taken so far, in ns."""
        self._recent: deque[tuple[Any, int]] = deque(maxlen=RECENT)
        """The last marks on the compute stream, and the times at which they were put, in ns."""
        self._due_ns = 0
        """Time from which on the device is queried again, in ns."""

    def ready(self) -> bool:
        """Returns False while a graph is captured, and once the clock is off."""
        return bool(self._call(self._device.ready, otherwise=False))

    def mark(self, follow: bool = False, current: bool = False) -> Put:
        """Puts a mark, and queries how far the device is if that was not found recently.

        Args:
            follow: True makes the current stream the compute stream from now on.
            current: True puts the mark to the current stream instead of the compute stream.
        """
        begin = at = self._host()
        mark, idle, aside, passed = None, False, False, None
        if self.ready():
            if follow:
                self._call(self._device.follow)
            aside = current and bool(self._call(self._device.aside, otherwise=False))
            if not aside and begin >= self._due_ns:
                idle, passed = self._reached(begin)
            at = self._host()
            mark = self._call(self._device.mark, current)
            if not aside:
                self._recent.append((mark, at))
        spent = self._host() - begin
        self.spent_ns += spent
        return Put(mark, at, spent, idle, aside, passed)

    def _reached(self, now: int) -> tuple[bool, Any]:
        """Queries how far the device is.

        Returns:
            True if the compute stream is empty; and the newest mark of `SETTLED_NS` or older, None if not passed.
        """
        known, put_ns = next((recent for recent in reversed(self._recent) if now - recent[1] >= SETTLED_NS), (None, 0))
        if known is not None and not self.done(known):
            return False, None
        idle = bool(self._call(self._device.idle, otherwise=False))
        if idle or (known is not None and now - put_ns <= SURE_NS):
            self._due_ns = now + RENEW_NS
        return idle, known

    def done(self, mark: Any) -> bool:
        """Returns True if the device has passed the mark."""
        return bool(self._call(self._device.done, mark, otherwise=False))

    def seconds(self, begin: Any, end: Any) -> float:
        """Returns the device seconds between two passed marks, or NaN."""
        return float(self._call(self._device.seconds, begin, end, otherwise=_NAN))

    def free(self, *marks: Any) -> None:
        """Gives marks back for reuse; None is skipped."""
        for mark in marks:
            if mark is None:
                continue
            if self._recent and any(mark is recent for recent, _ in self._recent):
                self._recent = deque((pair for pair in self._recent if pair[0] is not mark), RECENT)
            self._call(self._device.free, mark)

    def _call(self, call: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
        """Calls the device; returns `otherwise` if the call fails, or an earlier one has."""
        if self.off:
            return otherwise
        try:
            return call(*arguments)
        except Exception as error:
            self.off = True
            if self._failed is not None:
                self._failed(error)
            return otherwise

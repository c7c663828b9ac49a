"""What a device's own clock offers, and a fence around it: its errors end here, and what it costs is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

_NAN: Final = float("nan")


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
    idle: bool = False
    """The compute stream was asked, and had nothing left to do."""
    aside: bool = False
    """It was put to another stream than the compute stream."""


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

    def ready(self) -> bool:
        """False while a graph is captured, and once the clock is off."""
        return bool(self._asked(self._device.ready, otherwise=False))

    def mark(self, follow: bool = False, current: bool = False, ask: bool = False) -> Put:
        """Puts a mark.

        Args:
            follow: the current stream is the compute stream from now on.
            current: the mark goes to the current stream instead of the compute stream.
            ask: asks whether the compute stream has run empty, too.
        """
        begin = at = self._host()
        mark, idle, aside = None, False, False
        if self.ready():
            if follow:
                self._asked(self._device.follow)
            idle = ask and bool(self._asked(self._device.idle, otherwise=False))
            aside = current and bool(self._asked(self._device.aside, otherwise=False))
            at = self._host()
            mark = self._asked(self._device.mark, current)
        self.spent_ns += self._host() - begin
        return Put(mark, at, idle, aside)

    def done(self, mark: Any) -> bool:
        """Whether the device has passed the mark."""
        return bool(self._asked(self._device.done, mark, otherwise=False))

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks, or NaN."""
        return float(self._asked(self._device.seconds, begin, end, otherwise=_NAN))

    def free(self, *marks: Any) -> None:
        """Gives marks back; None is no mark."""
        for mark in marks:
            if mark is not None:
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

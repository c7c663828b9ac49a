"""What a device's own clock offers, and a fence around it: its errors end here, and what it costs is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

_NAN: Final = float("nan")


class DeviceClock(Protocol):
    """A device that marks can be put to: CUDA events, or a simulated queue in tests."""

    def ready(self) -> bool:
        """False while nothing may be put into the queue or asked of it: a graph is being captured."""
        ...

    def mark(self) -> Any:
        """Puts a mark into the device's queue."""
        ...

    def done(self, mark: Any) -> bool:
        """True if the device has passed the mark; does not wait."""
        ...

    def idle(self) -> bool:
        """True if the device has done all that its current queue was given; does not wait."""
        ...

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks; NaN if they were put to two devices."""
        ...

    def free(self, mark: Any) -> None:
        """Gives a mark back for reuse."""
        ...


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

    def mark(self) -> Any:
        """A mark; None where none can be put."""
        begin = self._host()
        mark = self._asked(self._device.mark) if self.ready() else None
        self.spent_ns += self._host() - begin
        return mark

    def done(self, mark: Any) -> bool:
        """Whether the device has passed the mark."""
        return bool(self._asked(self._device.done, mark, otherwise=False))

    def idle(self, within_ns: int) -> bool | None:
        """Whether the device has done all that it was given, now or within so many ns, for which it is asked again.

        For whom waits for it anyway. None where it cannot be asked.
        """
        begin = self._host()
        if not self.ready():
            return None
        idle: bool | None = self._asked(self._device.idle)
        now = self._host()
        self.spent_ns += now - begin  # of the rest the loop would have waited as well
        while idle is False and now - begin < within_ns:
            idle, now = self._asked(self._device.idle), self._host()
        return idle

    def seconds(self, begin: Any, end: Any) -> float:
        """Device seconds between two passed marks, or NaN."""
        return float(self._asked(self._device.seconds, begin, end, otherwise=_NAN))

    def free(self, *marks: Any) -> None:
        """Gives marks back; None is no mark."""
        for mark in marks:
            if mark is not None:
                self._asked(self._device.free, mark)

    def _asked(self, ask: Callable[..., Any], *marks: Any, otherwise: Any = None) -> Any:
        """What the device says; `otherwise` where it fails, and from then on."""
        if self.off:
            return otherwise
        try:
            return ask(*marks)
        except Exception as error:
            self.off = True
            if self._failed is not None:
                self._failed(error)
            return otherwise

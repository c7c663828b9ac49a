"""Waits for the device of the loop, at the ends of the stretch that a trial measures.

The user's own run is never held up: only a trial asks.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.capture.events import PAUSED, Log


class DeviceWaits:
    """How to wait, and how long that took between two steps."""

    def __init__(self, log: Log, note: Callable[[str], None]) -> None:
        """Args: log: of the run. note: takes a sentence."""
        self._log, self._note = log, note
        self._wait: Callable[[], bool] | None = None
        self.paused_ns = 0
        """How long a trial has waited between two steps."""

    def wait_by(self, wait: Callable[[], bool] | None) -> None:
        """`wait` waits for the device; it returns false where none runs behind the host. None = none does any more."""
        self._wait = wait

    @property
    def possible(self) -> bool:
        """Whether there may be a device to wait for."""
        return self._wait is not None

    def wait(self) -> bool:
        """Waits until the device has done all that was launched; false where there is none, or it cannot be."""
        try:
            return self._wait is not None and self._wait()
        except Exception as error:  # such as what a kernel of the loop's own has failed with: the loop will hear of it
            self._note(f"The device could not be waited for, so its own clock alone times the steps: {error}")
            return False

    def pause(self) -> bool:
        """The same between two steps, right after one has ended: the time is neither's."""
        log = self._log
        begin, cpu_ns = log.clock(), log.cpu_clock()
        waited = self.wait()
        now = log.clock()
        self.paused_ns += now - begin
        log.note((PAUSED, now, (begin, log.cpu_clock() - cpu_ns)))
        return waited

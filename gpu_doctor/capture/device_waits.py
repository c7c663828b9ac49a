"""Waits for the device, at both ends of the steps that a trial measures.

Only trials call this: the user's own run never waits for it.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.capture.events import PAUSED, Log


class DeviceWaits:
    """Waits for the device, and counts the time of waits between two steps."""

    def __init__(self, log: Log, note: Callable[[str], None]) -> None:
        """Args: log: the run's event log. note: called with a sentence for the footer."""
        self._log, self._note = log, note
        self._wait: Callable[[], bool] | None = None
        self.paused_ns = 0
        """Time that a trial has waited between two steps so far, in ns."""

    def wait_by(self, wait: Callable[[], bool] | None) -> None:
        """Sets the function that waits for the device and returns False if nothing runs there; None = there is none."""
        self._wait = wait

    @property
    def possible(self) -> bool:
        """True if there may be a device to wait for."""
        return self._wait is not None

    def wait(self) -> bool:
        """Waits until the device has done all launched work; returns False if there is no device or the wait fails."""
        try:
            return self._wait is not None and self._wait()
        except Exception as error:  # a kernel of the loop may have failed: the loop will see that error, too
            self._note(f"Waiting for the device failed, so only the device's own clock times the steps: {error}")
            return False

    def pause(self) -> bool:
        """Waits for the device right after a step has ended; the time belongs to no step. Returns as `wait`."""
        log = self._log
        begin, cpu_ns = log.clock(), log.cpu_clock()
        waited = self.wait()
        now = log.clock()
        self.paused_ns += now - begin
        log.note((PAUSED, now, (begin, log.cpu_clock() - cpu_ns)))
        return waited

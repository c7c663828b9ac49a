"""The verdict during a run: made as soon as there are enough steps, and again each time their number has doubled."""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis, diagnose
from gpu_doctor.recording import Recording


class LiveVerdict:
    """Makes the verdicts on one run, on the refresher's thread.

    Each verdict uses twice as many steps as the one before, so it rarely differs by chance and the panel stays stable.
    A run of n steps has at most log2(n) verdicts, so judging costs next to nothing.
    """

    def __init__(self) -> None:
        """Starts without a verdict."""
        self._newest: Diagnosis | None = None
        self._next = 0

    def on(self, steps: int, so_far: Callable[[], Recording]) -> Diagnosis | None:
        """Returns the verdict on a run; makes a new one when it is due.

        Args:
            steps: number of steps so far.
            so_far: returns the recording so far.
        """
        if steps >= self._next:
            self._newest = diagnose(so_far())
            known = self._newest.vitals.passes >= FEWEST_STEPS
            self._next = 2 * steps if known else steps + 1
        return self._newest

"""The verdict during a run: as soon as there are steps enough, then each time that these have doubled."""

from __future__ import annotations

from collections.abc import Callable

from gpu_doctor.diagnosis import FEWEST_STEPS, Diagnosis, diagnose
from gpu_doctor.recording import Recording


class LiveVerdict:
    """The verdicts on one run, one after the other, asked for on the refresher's thread.

    A verdict that stands on twice as many steps as the one before seldom differs by chance, so that what is shown holds
    still; and of a run of n steps there are at most log2(n) of them, so that judging costs next to nothing.
    """

    def __init__(self) -> None:
        """There is none yet."""
        self._newest: Diagnosis | None = None
        self._next = 0

    def on(self, steps: int, so_far: Callable[[], Recording]) -> Diagnosis | None:
        """The verdict on a run, a new one where it is time for it.

        Args:
            steps: that the run has made.
            so_far: what the run has left behind by now.
        """
        if steps >= self._next:
            self._newest = diagnose(so_far())
            known = self._newest.vitals.passes >= FEWEST_STEPS
            self._next = 2 * steps if known else steps + 1
        return self._newest

"""Compares two programs, or a program before and after a change, by their recordings: a gate for CI.

The gate fails only if a regression is proved: the whole interval of the speed-up lies below the bound, and the runs can
be compared. Everything else passes, and the measured bound is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting

if TYPE_CHECKING:
    from gpu_doctor.recording import Recording
    from gpu_doctor.trials.compare import Effect

ONE_PAIR: Final = (
    "One pair of runs leaves a wide interval: further pairs (A B A B), measured in turns on one machine, narrow it."
)

OTHER_START: Final = (
    "Losses are not compared: the runs began with different weights or data. One seed makes them equal."
)
ALIKE: Final = 1e-3
"""Largest relative difference of the first losses of runs with the same start: kernels and half precision round
differently."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of two sides, checked against a bound."""

    effect: Effect
    fail_below: float | None
    """Smallest speed-up that is no regression; None for no gate."""
    notes: tuple[str, ...] = ()
    """Sentences on what was not compared."""

    @property
    def comparable(self) -> bool:
        """True if the two sides can be compared: both were measured, and in the same way."""
        return self.effect.high is not None and not (self.effect.verdict == "inconclusive" and self.effect.reason)

    @property
    def is_regression(self) -> bool:
        """True if the interval proves that the second side is slower than the bound allows."""
        high = self.effect.high
        proved = self.comparable and self.effect.verdict == "slower"
        return proved and self.fail_below is not None and high is not None and high < self.fail_below

    def to_dict(self) -> dict[str, Any]:
        """Returns the effect as plain data, with the gate's bound and result."""
        gate = {"comparable": self.comparable, "fail_below": self.fail_below, "regression": self.is_regression}
        return {**self.effect.to_dict(), **gate}

    def __str__(self) -> str:
        return "\n".join([self._rates(), formatting.sentence(str(self.effect)), *self.notes, *self._gate()])

    def _rates(self) -> str:
        """Returns a line with the speeds of both sides of recordings, and the number of their pairs."""
        effect = self.effect
        sides = (effect.baseline_samples_per_s, effect.candidate_samples_per_s)
        first, second = (formatting.rate(side, effect.unit) for side in sides)
        return f"First {first}, second {second}, by {formatting.count(effect.pairs, 'pair')} of runs"

    def _gate(self) -> list[str]:
        if not self.comparable:
            return ["These runs cannot be compared, so no regression is proved."]
        advice = [ONE_PAIR] if self.effect.pairs == 1 and self.effect.verdict == "inconclusive" else []
        if self.fail_below is None:
            return advice
        bound, high = formatting.factor(self.fail_below), formatting.factor(self.effect.high)
        if self.is_regression:
            return [f"Regression: the second is at most {high} as fast as the first; the bound is {bound}."]
        low = formatting.factor(self.effect.low)
        return [f"No regression below {bound} is proved: the second is between {low} and {high} as fast.", *advice]


def compared(paths: Sequence[str], fail_below: float | None) -> Comparison:
    """Compares pairs of saved recordings.

    Args:
        paths: files of the first and the second side in turns: A B, or A B A B and so on.
        fail_below: smallest speed-up that is no regression; None for no gate.

    Raises:
        ValueError: A file is not a recording, the number of paths is odd, or the bound is not a valid ratio.
    """
    from gpu_doctor.recording import load
    from gpu_doctor.trials.compare import compare

    if len(paths) < 2 or len(paths) % 2:
        number = formatting.count(len(paths), "file")
        raise ValueError(f"compare takes pairs of recordings, first A, then B: {number} cannot be paired.")
    if fail_below is not None and not 0 < fail_below <= 1:
        raise ValueError("--fail-below takes a ratio above 0 and up to 1, such as 0.95.")
    recordings = [load(path) for path in paths]
    effect = compare(recordings[0::2], recordings[1::2])
    if effect.loss_drift is None or _same_start(recordings):
        return Comparison(effect, fail_below)
    blind = replace(effect, loss_drift=None, loss_verdict=None, loss_first_step=None, loss_alone=None)
    return Comparison(blind, fail_below, (OTHER_START,))


def _same_start(recordings: Sequence[Recording]) -> bool:
    """Returns True if the first losses of all runs are the same, so that weights and data were equal at the start."""
    firsts = [float(recording.losses.value[0]) for recording in recordings if len(recording.losses.value)]
    return bool(firsts) and max(firsts) - min(firsts) <= ALIKE * abs(max(firsts, key=abs))

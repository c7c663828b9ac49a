"""Two programs, or one before and after a change, compared by their recordings: a gate for CI.

The gate fails only where a regression is proved: the whole interval of the speed-up lies below the bound, and the runs
can be compared. Everything else passes, with the bound that was measured.
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

OTHER_START: Final = "Losses are not compared: the runs did not begin with the same weights and data, as with one seed."
ALIKE: Final = 1e-3
"""First losses that differ by no more, relatively, are of one start: kernels and half precision round otherwise."""


@dataclass(frozen=True)
class Comparison:
    """What two sides say of each other, held against a bound."""

    effect: Effect
    fail_below: float | None
    """The smallest speed-up that is no regression; None = no gate."""
    notes: tuple[str, ...] = ()
    """Sentences on what is left out."""

    @property
    def comparable(self) -> bool:
        """Whether the two sides say anything of each other: both were measured, and by equal means."""
        return self.effect.high is not None and not (self.effect.verdict == "inconclusive" and self.effect.reason)

    @property
    def is_regression(self) -> bool:
        """Whether the interval proves that the second side is slower than the bound allows."""
        high = self.effect.high
        proved = self.comparable and self.effect.verdict == "slower"
        return proved and self.fail_below is not None and high is not None and high < self.fail_below

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain data, with the gate's bound and answer."""
        gate = {"comparable": self.comparable, "fail_below": self.fail_below, "regression": self.is_regression}
        return {**self.effect.to_dict(), **gate}

    def __str__(self) -> str:
        return "\n".join([self._rates(), formatting.sentence(str(self.effect)), *self.notes, *self._gate()])

    def _rates(self) -> str:
        effect = self.effect
        sides = (effect.baseline_samples_per_s, effect.candidate_samples_per_s)
        first, second = (formatting.rate(one, effect.unit) for one in sides)
        return f"First {first}, second {second}, by {formatting.count(effect.pairs, 'pair')} of runs"

    def _gate(self) -> list[str]:
        if not self.comparable:
            return ["These runs cannot be compared, so no regression is proved."]
        advice = [ONE_PAIR] if self.effect.pairs == 1 and self.effect.verdict == "inconclusive" else []
        if self.fail_below is None:
            return advice
        bound, high = formatting.factor(self.fail_below), formatting.factor(self.effect.high)
        if self.is_regression:
            return [f"Regression: the second is at most {high} as fast as the first, and {bound} was allowed."]
        low = formatting.factor(self.effect.low)
        return [f"No regression below {bound} is proved: the second is between {low} and {high} as fast.", *advice]


def compared(paths: Sequence[str], fail_below: float | None) -> Comparison:
    """Compares pairs of saved recordings.

    Args:
        paths: of the first side and the second in turns: A B, or A B A B and so on.
        fail_below: see `Comparison`.

    Raises:
        ValueError: if a file is no recording, the number of paths is odd, or the bound is none.
    """
    from gpu_doctor.recording import load
    from gpu_doctor.trials.compare import compare

    if len(paths) < 2 or len(paths) % 2:
        told = formatting.count(len(paths), "file")
        raise ValueError(f"compare takes pairs of recordings, first A, then B: {told} cannot be paired.")
    if fail_below is not None and not 0 < fail_below <= 1:
        raise ValueError("--fail-below takes a ratio above 0 and up to 1, such as 0.95.")
    recordings = [load(path) for path in paths]
    effect = compare(recordings[0::2], recordings[1::2])
    if effect.loss_drift is None or _began_alike(recordings):
        return Comparison(effect, fail_below)
    blind = replace(effect, loss_drift=None, loss_verdict=None, loss_first_step=None, loss_alone=None)
    return Comparison(blind, fail_below, (OTHER_START,))


def _began_alike(recordings: Sequence[Recording]) -> bool:
    """Whether the first losses of all runs are the same: those of equal weights on equal data, before any step."""
    firsts = [float(one.losses.value[0]) for one in recordings if len(one.losses.value)]
    return bool(firsts) and max(firsts) - min(firsts) <= ALIKE * abs(max(firsts, key=abs))

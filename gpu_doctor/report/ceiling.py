"""The ceiling mark in the bar of the mean step: the step time that an ideal loader would give."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_doctor import formatting
from gpu_doctor.diagnosis import Vitals
from gpu_doctor.report.contract import Ceiling
from gpu_doctor.trials import ceiling
from gpu_doctor.trials.compare import Effect


def ceiling_of(effects: Sequence[Effect], vitals: Vitals) -> Ceiling | None:
    """Returns the ceiling's position in the bar of a mean step, or None if no ideal loader was measured.

    Args:
        effects: effects of a case, oldest first.
        vitals: vitals of the run whose step is drawn.
    """
    ideal, step_s = ceiling(effects), vitals.host_step_s
    if ideal is None or not ideal.speedup or not step_s:
        return None
    gain = formatting.speedup(ideal.speedup, ideal.low, ideal.high)
    wide = formatting.is_wide(ideal.speedup, ideal.low, ideal.high)
    least = ideal.low if wide and ideal.low else ideal.speedup
    took = ("at most " if wide else "") + formatting.seconds(step_s / least)
    proved = "" if ideal.verdict == "faster" else f", {ideal.verdict_words}"
    text = f"With an ideal loader a step takes {took}: {gain}{proved}. No change of the input can give more."
    return Ceiling(round(min(1.0 / least, 1.0), 4), text)

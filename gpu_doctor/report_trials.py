"""Which recordings a trial left, and what they say of its losses and its device, in words for panel and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gpu_doctor.effect import UNMEASURED, Effect
from gpu_doctor.parity import BREAKS, DIFFERENT
from gpu_doctor.recording import Recording
from gpu_doctor.wording import clean, sentence

Sides = tuple[Recording, Recording]
"""Baseline and candidate of the last round of a trial."""

SCALING: Final = (
    "Compared per sample seen. With {times} the batch there are {fewer} steps per epoch: most trainings then want the "
    "learning rate scaled alike ({scaled}), with a few hundred steps of warm-up (Goyal et al. 2017)."
)
WARNS: Final = (DIFFERENT, BREAKS)
NO_GPU: Final = "not measured (no GPU)"
TOO_SHORT: Final = "not measured: the trial was over before the first reading"


def sides_of(effects: Sequence[Effect], trials: Sequence[Sides]) -> list[Sides | None]:
    """The recordings of each effect, None where a trial was refused before it began; both oldest first."""
    left = [one for one in trials if one[0] is not one[1]]  # the others were measurements without a candidate
    found: list[Sides | None] = []
    for effect in effects:
        at = next((i for i, one in enumerate(left) if _belongs(effect, one)), None)
        found.append(None if at is None else left[at])
        if at is not None:
            del left[: at + 1]
    return found


def _belongs(effect: Effect, sides: Sides) -> bool:
    base, candidate = sides
    if dict(base.settings) != dict(effect.baseline_settings) or dict(candidate.settings) != dict(effect.settings):
        return False
    if effect.outcome != "refused":
        return True
    return any(one.outcome == "refused" and one.reason and one.reason in effect.reason for one in sides)


def notes_of(effect: Effect, sides: Sides | None) -> tuple[str, ...]:
    """What a trial left to say, such as files that the cell wrote: its own notes, then its sides', once each."""
    said = [sentence(note) for note in effect.notes]
    for one in sides or ():
        said += one.notes
    return tuple(dict.fromkeys(clean(note) for note in said))


@dataclass(frozen=True)
class LossStory:
    """What became of the loss in a trial, in words."""

    judgement: str
    """Such as `The loss is the same in every step.`; empty where there is nothing to compare."""
    scaling: str = ""
    """The note on the learning rate where the batch changed."""
    warns: bool = False
    """The training is not the same: the losses differ by more than rounding, or break."""


def loss_story(effect: Effect, sides: Sides | None) -> LossStory:
    """How both sides' losses compare over the same samples from the same state."""
    if effect.outcome in UNMEASURED or sides is None:
        return LossStory("")
    return LossStory(sentence(effect.loss_words), _scaling(sides), effect.loss_verdict in WARNS)


def _scaling(sides: Sides) -> str:
    """The linear-scaling note, where the candidate's batch is another."""
    before, after = (_samples_a_step(one) for one in sides)
    if not (before > 0 and after > 0) or 0.99 < after / before < 1.01:
        return ""
    ratio = after / before
    times = f"{ratio:.3g} times"
    fewer = f"{ratio:.3g} times fewer" if ratio > 1 else f"{1 / ratio:.3g} times more"
    return SCALING.format(times=times, fewer=fewer, scaled=f"x{ratio:.3g}")


def _samples_a_step(recording: Recording) -> float:
    samples = recording.steps.samples
    known = samples[np.isfinite(samples)]
    return float(np.median(known)) if len(known) else float("nan")

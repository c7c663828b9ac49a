"""Which recordings a trial left, and what they say of its losses and its device, in words for panel and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor.formatting import clean, sentence
from gpu_doctor.recording import Recording
from gpu_doctor.trials.compare import batch_scaling
from gpu_doctor.trials.compare.effect import UNMEASURED, Effect
from gpu_doctor.trials.compare.losses import BREAKS, DIFFERENT

Sides = tuple[Recording, Recording]
"""Baseline and candidate of the last round of a trial."""

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
    return LossStory(sentence(effect.loss_words), batch_scaling.note(effect.batch_ratio), effect.loss_verdict in WARNS)

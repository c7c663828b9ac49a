"""What the trials left, told for panel and report: recordings, both sides' losses as a picture, judged; the notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from gpu_doctor.elements import MUTED, folded
from gpu_doctor.formatting import clean, sentence
from gpu_doctor.labels import LABELS
from gpu_doctor.recording import Recording, describe
from gpu_doctor.report.chart import line_swatch
from gpu_doctor.report.losses import BASELINE, CANDIDATE, loss_lines
from gpu_doctor.svg import as_image
from gpu_doctor.trials import ceiling, reached
from gpu_doctor.trials.compare import UNMEASURED, Effect

Sides = tuple[Recording, Recording]
"""Baseline and candidate of the last round of a trial."""

NO_GPU: Final = "not measured (no GPU)"
TOO_SHORT: Final = "not measured: the trial ended before the first reading"
FEW: Final = 3
"""So many trials are shown unfolded."""
MOST_DRAWN: Final = 8
"""Trials whose losses are drawn, the newest; of others the words stand."""


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


def notes_of(effect: Effect, sides: Sides | None, among: Sequence[Effect]) -> tuple[str, ...]:
    """What a trial left to say, once each: how near it came to the ceiling, its own notes, then those of its sides.

    Args:
        effect: of the trial.
        sides: its recordings.
        among: the trials of the case, oldest first.
    """
    part = reached(effect, ceiling(among))
    said = [sentence(note) for note in ([str(part)] if part is not None else []) + list(effect.notes)]
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
    return LossStory(sentence(effect.loss_words), sentence(effect.scaling), effect.loss_changed)


def sides_html(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> str:
    """One piece per trial that has losses or notes; '' where none has."""
    drawn_from = len(effects) - MOST_DRAWN
    pieces = [
        piece
        for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1)
        if (piece := _piece(number, effect, both, effects, drawn=number > drawn_from))
    ]
    if not pieces:
        return ""
    strokes = ((BASELINE, LABELS.baseline), (CANDIDATE, LABELS.candidate))
    keys = [f"{as_image(line_swatch(stroke), '')} {name}" for stroke, name in strokes]
    legend = f'<span style="{MUTED}">{LABELS.losses} &nbsp; {" &nbsp; ".join(keys)}</span>'
    body = f'<div style="display:flex;flex-wrap:wrap">{"".join(pieces)}</div>'
    return folded(f"Trials &nbsp; {legend}", body, opened=len(pieces) <= FEW)


def _piece(number: int, effect: Effect, both: Sides | None, among: Sequence[Effect], drawn: bool) -> str:
    story, notes = loss_story(effect, both), notes_of(effect, both, among)
    picture = (
        loss_lines(both[0].losses, both[1].losses, effect.loss_first_step)
        if both is not None and story.judgement
        else ""
    )
    if not picture and not notes:
        return ""
    name = f"trial {number}, {clean(describe(effect.settings), 120)}"
    said = [one for one in (story.judgement, story.scaling) if one]
    shown = as_image(picture, f"Losses of {name}: {story.judgement}", 340) if picture and drawn else ""
    words = "".join(f"<div>{escape(one)}</div>" for one in (said if picture else []))
    listed = "".join(f'<div style="{MUTED}">{escape(note)}</div>' for note in notes)
    style = "flex:1 1 260px;max-width:340px;margin:4px 16px 6px 0;font-size:12px"
    return f'<div style="{style}"><div><b>{escape(name)}</b></div>{shown}{words}{listed}</div>'


def sides_text(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> list[str]:
    """The same for a terminal, one line each."""
    lines = []
    for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1):
        story = loss_story(effect, both)
        said = [one for one in (story.judgement, story.scaling, *notes_of(effect, both, effects)) if one]
        lines += [f"trial {number}: {one}" for one in said]
    return lines

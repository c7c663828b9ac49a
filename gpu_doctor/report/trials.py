"""Shows the trials in panel and report: their recordings, both sides' losses with a judgement, and their notes."""

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
"""The recordings of baseline and candidate in the last round of a trial."""

NO_GPU: Final = "not measured (no GPU)"
TOO_SHORT: Final = "not measured: the trial ended before the first reading"
FEW: Final = 3
"""The trials are shown unfolded if there are at most this many."""
MOST_DRAWN: Final = 8
"""Number of the newest trials whose losses are drawn; older ones have words alone."""


def sides_of(effects: Sequence[Effect], trials: Sequence[Sides]) -> list[Sides | None]:
    """Matches effects with their recordings, both oldest first; None for a trial that was refused before it began."""
    unmatched = [
        sides for sides in trials if sides[0] is not sides[1]
    ]  # the others were measurements without a candidate
    found: list[Sides | None] = []
    for effect in effects:
        at = next((i for i, pair in enumerate(unmatched) if _belongs(effect, pair)), None)
        found.append(None if at is None else unmatched[at])
        if at is not None:
            del unmatched[: at + 1]
    return found


def _belongs(effect: Effect, sides: Sides) -> bool:
    base, candidate = sides
    if dict(base.settings) != dict(effect.baseline_settings) or dict(candidate.settings) != dict(effect.settings):
        return False
    if effect.outcome != "refused":
        return True
    return any(side.outcome == "refused" and side.reason and side.reason in effect.reason for side in sides)


def notes_of(effect: Effect, sides: Sides | None, among: Sequence[Effect]) -> tuple[str, ...]:
    """Returns the notes of a trial without duplicates: its distance to the ceiling, its own notes, those of its sides.

    Args:
        effect: effect of the trial.
        sides: recordings of the trial.
        among: effects of the case, oldest first.
    """
    reached_words = reached(effect, ceiling(among))
    notes = [
        sentence(note) for note in ([str(reached_words)] if reached_words is not None else []) + list(effect.notes)
    ]
    for side in sides or ():
        notes += side.notes
    return tuple(dict.fromkeys(clean(note) for note in notes))


@dataclass(frozen=True)
class LossStory:
    """Sentences on how the losses of a trial compare."""

    judgement: str
    """Judgement, such as `The loss is the same in every step.`; empty if there is nothing to compare."""
    scaling: str = ""
    """Note on the learning rate if the batch size changed, else empty."""
    warns: bool = False
    """True if the losses differ by more than rounding, or become NaN or infinite."""


def loss_story(effect: Effect, sides: Sides | None) -> LossStory:
    """Returns the comparison of both sides' losses, over the same samples from the same state."""
    if effect.outcome in UNMEASURED or sides is None:
        return LossStory("")
    return LossStory(sentence(effect.loss_words), sentence(effect.scaling), effect.loss_changed)


def sides_html(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> str:
    """Renders one piece per trial that has losses or notes; '' if none has."""
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
    sentences = [sentence for sentence in (story.judgement, story.scaling) if sentence]
    shown = as_image(picture, f"Losses of {name}: {story.judgement}", 340) if picture and drawn else ""
    words = "".join(f"<div>{escape(sentence)}</div>" for sentence in (sentences if picture else []))
    listed = "".join(f'<div style="{MUTED}">{escape(note)}</div>' for note in notes)
    style = "flex:1 1 260px;max-width:340px;margin:4px 16px 6px 0;font-size:12px"
    return f'<div style="{style}"><div><b>{escape(name)}</b></div>{shown}{words}{listed}</div>'


def sides_text(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> list[str]:
    """Returns the judgements and notes of the trials for a terminal, one line each."""
    lines = []
    for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1):
        story = loss_story(effect, both)
        sentences = [
            sentence for sentence in (story.judgement, story.scaling, *notes_of(effect, both, effects)) if sentence
        ]
        lines += [f"trial {number}: {sentence}" for sentence in sentences]
    return lines

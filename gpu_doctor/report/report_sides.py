"""What the trials left behind, as HTML for the static result: both sides' losses as a picture, judged; the notes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor.formatting import clean
from gpu_doctor.recording import describe
from gpu_doctor.report.losses import loss_lines, loss_swatch
from gpu_doctor.report.svg import as_image
from gpu_doctor.report.trials import Sides, loss_story, notes_of
from gpu_doctor.trials.compare.effect import Effect

FEW: Final = 3
"""So many trials are shown unfolded."""
_SECTION: Final = "padding:8px 14px;border-top:1px solid rgba(128,128,128,0.35)"
_MUTED: Final = "opacity:0.72"


def sides_html(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> str:
    """One piece per trial that has losses or notes; '' where none has."""
    pieces = [
        piece
        for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1)
        if (piece := _piece(number, effect, both))
    ]
    if not pieces:
        return ""
    keys = [f"{as_image(loss_swatch(i > 0), '')} {name}" for i, name in enumerate(("baseline", "candidate"))]
    legend = f'<span style="{_MUTED}">loss over samples seen &nbsp; {" &nbsp; ".join(keys)}</span>'
    body = f'<div style="display:flex;flex-wrap:wrap">{"".join(pieces)}</div>'
    state = " open" if len(pieces) <= FEW else ""
    return f'<div style="{_SECTION}"><details{state}><summary>Trials &nbsp; {legend}</summary>{body}</details></div>'


def _piece(number: int, effect: Effect, both: Sides | None) -> str:
    story, notes = loss_story(effect, both), notes_of(effect, both)
    picture = (
        loss_lines(both[0].losses, both[1].losses, effect.loss_first_step)
        if both is not None and story.judgement
        else ""
    )
    if not picture and not notes:
        return ""
    name = f"trial {number}, {clean(describe(effect.settings), 120)}"
    said = [one for one in (story.judgement, story.scaling) if one]
    shown = as_image(picture, f"Losses of {name}: {story.judgement}", 340) if picture else ""
    words = "".join(f"<div>{escape(one)}</div>" for one in (said if picture else []))
    listed = "".join(f'<div style="{_MUTED}">{escape(note)}</div>' for note in notes)
    style = "flex:1 1 260px;max-width:340px;margin:4px 16px 6px 0;font-size:12px"
    return f'<div style="{style}"><div><b>{escape(name)}</b></div>{shown}{words}{listed}</div>'


def sides_text(effects: Sequence[Effect], sides: Sequence[Sides | None]) -> list[str]:
    """The same for a terminal, one line each."""
    lines = []
    for number, (effect, both) in enumerate(zip(effects, sides, strict=True), 1):
        story = loss_story(effect, both)
        said = [one for one in (story.judgement, story.scaling, *notes_of(effect, both)) if one]
        lines += [f"trial {number}: {one}" for one in said]
    return lines

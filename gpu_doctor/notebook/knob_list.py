"""What `%gpudoctor knobs` shows: every knob, as written, what it can be or why not, and what turning it changes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.notebook.shown import Shown
from gpu_doctor.recording import Setup
from gpu_doctor.trials.knobs.knob import Knob, KnobTable

WIDTH: Final = 100
_NAME: Final = 20
_UNKNOWN: Final = "run a cell with %%gpudoctor first, and what its loop allows is told here"
_SAFETY: Final = {Safety.SAFE: "safe", Safety.CHANGES_TRAINING: "changes the training", Safety.BY_HAND: "by hand"}


@dataclass(frozen=True)
class Row:
    """One knob in words."""

    name: str
    safety: str
    written: str
    """Empty where the loop has nothing to turn."""
    can_be: str
    """Other values; empty where there is none."""
    why_not: str
    changes: str

    @property
    def offer(self) -> str:
        """What it is and what it can be, or why it cannot be turned."""
        written = self.written and f"as written {self.written}".replace("as written as written", "as written")
        if self.can_be:
            return f"{written}; can be {self.can_be}" if written else f"can be {self.can_be}"
        return f"{written}. {self.why_not}" if written and self.why_not else written or self.why_not


def knob_list(
    knobs: KnobTable,
    setup: Setup,
    variables: Iterable[tuple[str, object]] = (),
    turned: Mapping[str, object] | None = None,
) -> Shown:
    """The table of knobs for the loop of `setup` (an empty one: no loop was seen yet).

    Args:
        variables: names and literals of the cell that can be varied.
        turned: knobs that were turned when the setup was found: of these it does not tell how they are written.
    """
    rows = [_row(knob, setup, turned or {}) for knob in knobs.values()]
    rows += [
        Row(f"vary.{name}", "changes the training", f"{value!r:.60}", "", "", "A variable of the cell: see --vary.")
        for name, value in variables
    ]
    return Shown("\n".join(line for row in rows for line in _text(row)), _html(rows))


def _row(knob: Knob, setup: Setup, turned: Mapping[str, object]) -> Row:
    safety = _SAFETY[knob.safety]
    if setup == Setup():
        return Row(knob.name, safety, "", "", _UNKNOWN, knob.changes)
    written = knob.found(setup)
    choices = knob.choices(setup)
    unseen = knob.name in turned
    free = [choice.label for choice in choices if not choice.refusal and (unseen or choice.value != written)]
    why_not = next((choice.refusal for choice in choices if choice.refusal), "")
    if written is None and why_not and len(free) == 1:
        free = []  # "off" alone is nothing to choose
    shown = "" if written is None else formatting.clean(_label(knob, setup, written), 60)
    if unseen:
        shown = (
            f"not run yet (turned to {formatting.clean(_label(knob, setup, turned[knob.name]), 60)} in the last run)"
        )
    return Row(
        knob.name, safety, shown, formatting.clean(", ".join(free), 200), formatting.clean(why_not), knob.changes
    )


def _label(knob: Knob, setup: Setup, written: object) -> str:
    """The value as written in the words of the panel."""
    return next((one.label for one in knob.choices(setup) if one.value == written), str(written))


def _text(row: Row) -> list[str]:
    """Lines of at most WIDTH characters, what follows set in under the first."""
    indent = " " * (_NAME + 1)
    lines = textwrap.wrap(f"{row.name:<{_NAME}} {row.offer}", WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    said = f"{row.safety}: {row.changes}" if row.changes else row.safety
    return lines + textwrap.wrap(said, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _html(rows: Iterable[Row]) -> str:
    line = "1px solid rgba(128,128,128,0.35)"
    cell = f"padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:{line}"
    head = "".join(f'<th style="{cell};opacity:0.72;font-weight:normal">{one}</th>' for one in _HEAD)
    body = "".join(
        f'<tr style="background:transparent"><td style="{cell};white-space:nowrap"><b>{escape(row.name)}</b></td>'
        f'<td style="{cell}">{escape(row.written or "-")}</td>'
        f'<td style="{cell}">{escape(row.can_be or row.why_not or "-")}</td>'
        f'<td style="{cell}"><b>{escape(row.safety)}</b>{": " if row.changes else ""}{escape(row.changes)}</td></tr>'
        for row in rows
    )
    # JupyterLab's own style makes all columns of a table equally wide.
    style = "border-collapse:collapse;table-layout:auto;width:100%;max-width:1100px;font-size:13px;border:none"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


_HEAD: Final = ("knob", "as written", "can be", "what turning it changes")

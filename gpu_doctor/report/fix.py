"""Shows the change to the user's own cells: the changed lines, notes, lines to paste, and the changed cells whole."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import Fix
from gpu_doctor.elements import LINE, MONO, MUTED, details
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS
from gpu_doctor.recording import SettingValue
from gpu_doctor.report.contract import FixCell, FixShown

MOST_LINES: Final = 600
"""Lines of a diff or cell that are shown; the rest is only counted."""
MOST_LETTERS: Final = 2000
"""Characters of a line that are shown."""
_TINTS: Final = {"removed": "rgba(213,94,0,0.16)", "added": "rgba(0,158,115,0.18)"}
"""Background of a changed line, transparent so that the page's text colour stays legible in light and dark."""
_BLOCK: Final = (
    f"{MONO};line-height:1.45;margin:4px 0 2px 0;padding:5px 0;"
    f"border:{LINE};border-radius:4px;overflow-x:auto;background:transparent"
)


def fix_shown(fix: Fix, settings: Mapping[str, SettingValue]) -> FixShown:
    """Converts a fix to plain data for the page."""
    lines = [(kind, clean(text, MOST_LETTERS)) for kind, text in fix.lines() if kind not in ("note", "paste")]
    return FixShown(
        lines=tuple(_first(lines)),
        # Copied text is the user's own, unchanged except for lone surrogates, which no page can hold.
        cells=tuple(FixCell(clean(cell.label, 80), _whole(cell.after)) for cell in fix.cells),
        notes=tuple(clean(note, 600) for note in fix.remarks),
        paste=_whole(fix.paste),
        complete=fix.complete,
        error="",
        settings=settings,
    )


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _first(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns the first MOST_LINES lines, and a line that counts the rest if there is one."""
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], ("place", f"and {formatting.count(more, 'more line')}")] if more > 0 else lines


def fix_html(shown: FixShown) -> str:
    """Renders a change as HTML: its lines, notes, lines to paste, and every changed cell whole, folded."""
    parts = [_block([_line(*line) for line in shown.lines])] if shown.lines else []
    parts += [f"<div>{escape(note)}</div>" for note in shown.notes]
    if shown.paste:
        parts.append(f'<div style="{MUTED}">{LABELS.paste}</div>')
        parts.append(_block([_line(*line) for line in _unchanged(shown.paste)]))
    for cell in shown.cells:
        body = _block([_text(text) for _, text in _unchanged(cell.text)], ";padding:5px 8px")
        parts.append(details(f"{escape(cell.label)} with the change", body, style=MUTED))
    return "".join(parts)


def _unchanged(text: str) -> list[tuple[str, str]]:
    return _first([("same", line) for line in text.splitlines()])


def _block(lines: list[str], style: str = "") -> str:
    return f'<pre style="{_BLOCK}{style}">{"".join(lines)}</pre>'


def _line(kind: str, text: str) -> str:
    tint = f"background:{_TINTS[kind]};" if kind in _TINTS else f"{MUTED};" if kind in ("head", "place") else ""
    return f'<span style="{tint}padding:0 8px">{_text(text)}</span>'


def _text(line: str) -> str:
    # The line break stays in the text: if a sanitizer removes the style, a pre still breaks its lines.
    return escape(clean(line, MOST_LETTERS)) + "\n"

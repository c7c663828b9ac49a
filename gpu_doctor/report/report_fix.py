"""A fix as HTML for the static result: the user's own cells as a diff whose colours never stand alone, and whole."""

from __future__ import annotations

from html import escape
from typing import Final

from gpu_doctor.cell.fix import Fix
from gpu_doctor.formatting import clean, count

MOST_LINES: Final = 400
"""Lines of a diff or cell that are laid out; a cell that is longer is said to go on."""
_TINTS: Final = {"removed": "rgba(213,94,0,0.16)", "added": "rgba(0,158,115,0.18)"}
"""Behind the line's own - and +; see-through, so that the page's ink stays legible in light and dark."""
_MUTED: Final = "opacity:0.72"
_BLOCK: Final = (
    "font-family:monospace;font-size:12px;line-height:1.45;margin:4px 0 2px 0;padding:5px 0;"
    "border:1px solid rgba(128,128,128,0.35);border-radius:4px;overflow-x:auto;background:transparent"
)


def fix_html(fix: Fix) -> str:
    """The changed lines, the notes, the lines to paste, every changed cell whole, folded; '' where nothing changes."""
    parts = []
    lines = [(kind, text) for kind, text in fix.lines() if kind not in ("note", "paste")]
    if lines:
        parts.append(_block([_line(kind, text) for kind, text in lines]))
    parts += [f"<div>{escape(clean(note))}</div>" for note in fix.notes]
    if fix.paste:
        parts.append(f'<div style="{_MUTED}">To paste by hand:</div>')
        parts.append(_block([_line("same", text) for text in fix.paste.splitlines()]))
    for cell in fix.cells:
        body = _block([_line("same", text) for text in cell.after.splitlines()])
        name = escape(clean(cell.label, 80))
        parts.append(f'<details style="{_MUTED}"><summary>{name}, whole, with the change</summary>{body}</details>')
    return "".join(parts)


def _block(lines: list[str]) -> str:
    more = ""
    if len(lines) > MOST_LINES:
        left = count(len(lines) - MOST_LINES, "more line")
        more = f'<div style="{_MUTED}">and {left}</div>'
    return f'<pre style="{_BLOCK}">{"".join(lines[:MOST_LINES])}</pre>{more}'


def _line(kind: str, text: str) -> str:
    style = f"background:{_TINTS[kind]}" if kind in _TINTS else _MUTED if kind in ("head", "place") else ""
    # The line break stays in the text: where a sanitizer takes the style away, a pre still breaks its lines.
    shown = escape(clean(text, 2000)) + "\n"
    return (
        f'<span style="{style};padding:0 8px">{shown}</span>'
        if style
        else f'<span style="padding:0 8px">{shown}</span>'
    )

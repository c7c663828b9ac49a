"""Renders a job as plain text for a terminal and as HTML that notebook sanitizers keep. All text is escaped here."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from gpu_doctor.elements import FIGURES, LINE, MUTED, TABLE, TOGETHER
from gpu_doctor.job.shares import Remark

_WIDTH: Final = 110
_LEFT: Final = ("state",)
_CELL: Final = f"padding:3px 10px 3px 0;{TOGETHER};border-bottom:{LINE}"


def text(head: str, remarks: Sequence[Remark], rows: Sequence[Mapping[str, str]], footer: Sequence[str]) -> str:
    """Renders a job for a terminal: its problems first, then the table."""
    remark_lines = [part for remark in remarks for part in _remark(remark)]
    return "\n\n".join(
        part for part in (head, "\n".join(remark_lines), _table(rows), "\n".join(_wrapped(footer))) if part
    )


def _remark(remark: Remark) -> list[str]:
    lines = textwrap.wrap(remark.sentence, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return lines + textwrap.wrap(remark.to_do, _WIDTH, initial_indent="  -> ", subsequent_indent="     ")


def _wrapped(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in textwrap.wrap(sentence, _WIDTH)]


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in names}
    lines = [{name: name for name in names}, *rows]
    return "\n".join("  ".join(_padded(name, line[name], widths[name]) for name in names).rstrip() for line in lines)


def _padded(name: str, cell: str, width: int) -> str:
    return cell.ljust(width) if name in _LEFT else cell.rjust(width)


def html(head: str, remarks: Sequence[Remark], rows: Sequence[Mapping[str, str]], footer: Sequence[str]) -> str:
    """Renders a job as HTML for a notebook: its problems first, then the table."""
    items = "".join(
        f'<li style="margin:3px 0">{escape(item.sentence)}{f" <b>{escape(item.to_do)}</b>" if item.to_do else ""}</li>'
        for item in remarks
    )
    notes = "".join(f"<div>{escape(sentence)}</div>" for sentence in footer)
    return (
        '<div class="gpu-doctor-static" style="font-size:13px;line-height:1.45;max-width:1100px;margin:4px 0">'
        f"<div><b>{escape(head)}</b></div>"
        + (f'<ul style="margin:4px 0;padding-left:20px">{items}</ul>' if items else "")
        + f'<div style="overflow-x:auto">{_html_table(rows)}</div>'
        + f'<div style="{MUTED};font-size:12px">{notes}</div></div>'
    )


def _html_table(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    head = "".join(f'<th style="{_style(name)}">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_style(name)}">{escape(row[name])}</td>' for name in names) + "</tr>"
        for row in rows
    )
    return f'<table style="{TABLE};{FIGURES};margin:4px 0"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _style(name: str) -> str:
    return f"{_CELL};text-align:{'left' if name in _LEFT else 'right'}"

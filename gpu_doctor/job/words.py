"""A job in words: plain text for a terminal, and HTML that notebook sanitizers keep. All text is escaped here."""

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
    """For a terminal: what is wrong first, then the table."""
    said = [part for one in remarks for part in _remark(one)]
    return "\n\n".join(part for part in (head, "\n".join(said), _table(rows), "\n".join(_wrapped(footer))) if part)


def _remark(one: Remark) -> list[str]:
    lines = textwrap.wrap(one.sentence, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return lines + textwrap.wrap(one.to_do, _WIDTH, initial_indent="  -> ", subsequent_indent="     ")


def _wrapped(sentences: Sequence[str]) -> list[str]:
    return [line for one in sentences for line in textwrap.wrap(one, _WIDTH)]


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
    """The same for a notebook."""
    said = "".join(
        f'<li style="margin:3px 0">{escape(one.sentence)}{f" <b>{escape(one.to_do)}</b>" if one.to_do else ""}</li>'
        for one in remarks
    )
    notes = "".join(f"<div>{escape(one)}</div>" for one in footer)
    return (
        '<div class="gpu-doctor-static" style="font-size:13px;line-height:1.45;max-width:1100px;margin:4px 0">'
        f"<div><b>{escape(head)}</b></div>"
        + (f'<ul style="margin:4px 0;padding-left:20px">{said}</ul>' if said else "")
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

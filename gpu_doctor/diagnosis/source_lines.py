"""Where the time goes line by line: the cell's source with a bar for each line, and the dearest lines elsewhere.

Lines of the training thread have shares of the wall-clock; lines seen inside a loader's workers have shares of the
fetch, which goes on beside the loop: another whole, so they are said apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import PurePath
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.elements import MONO, MUTED, TABLE
from gpu_doctor.formatting import clean
from gpu_doctor.labels import PHASE_LABELS
from gpu_doctor.recording import LineCost
from gpu_doctor.svg import PHASE_COLOURS

MOST_SOURCE_LINES: Final = 200
MOST_ELSEWHERE: Final = 8
"""Lines that are shown of all other files together."""
SEEN_SHARE: Final = 0.005
"""A line of the cell has a bar from this share on, a line of another file is listed from twice of it on."""
WORKER_WORDS: Final = "in worker, share of the fetch"
_BLOCKS: Final = 16
_PAD: Final = "padding:0 10px 0 0;white-space:nowrap;border:none;background:transparent;vertical-align:top"


@dataclass(frozen=True)
class Lines:
    """Line costs sorted by where they stand."""

    own: dict[int, list[LineCost]]
    """Number of a line of the cell -> its costs."""
    elsewhere: dict[str, list[LineCost]]
    """What another file is called -> its dear lines, dearest first."""


def lines_of(source: str, costs: Sequence[LineCost]) -> Lines:
    """Which costs are lines of the cell; a line that reads otherwise than the cell's own is none of it."""
    text = source.rstrip().split("\n")
    same = [one for one in costs if _reads_alike(one, text)]
    weight: dict[str, float] = {}
    for one in same:
        weight[one.file] = weight.get(one.file, 0.0) + one.share
    cell = max(weight, key=lambda file: weight[file], default=None)
    own: dict[int, list[LineCost]] = {}
    for one in (one for one in same if one.file == cell):
        own.setdefault(one.line, []).append(one)
    others = [one for one in costs if one.file != cell and one.share >= 2 * SEEN_SHARE]
    others = sorted(others, key=lambda one: -one.share)[:MOST_ELSEWHERE]
    elsewhere: dict[str, list[LineCost]] = {}
    for one in others:
        elsewhere.setdefault(_file_words(one.file, [other.file for other in others]), []).append(one)
    return Lines(own, elsewhere)


def _reads_alike(one: LineCost, text: Sequence[str]) -> bool:
    return 0 < one.line <= len(text) and bool(one.text) and text[one.line - 1].strip() == clean(one.text).strip()


def _file_words(file: str, among: Sequence[str]) -> str:
    """What a file is called: its name, with its folder where two share it; a cell has only a made-up one."""
    if is_cell(file):
        cells = list(dict.fromkeys(one for one in among if is_cell(one)))
        return "another cell" if len(cells) == 1 else f"another cell ({cells.index(file) + 1})"
    path = PurePath(clean(file, 400))
    alike = {one for one in among if PurePath(one).name == path.name}
    return path.name if len(alike) == 1 else str(PurePath(*path.parts[-2:]))


def is_cell(file: str) -> bool:
    """Whether a file name is one that a notebook or a case made up for a cell."""
    return "ipykernel" in file or file.startswith(("<ipython-input", "<gpu_doctor", "<cell"))


def body(source: str, costs: Sequence[LineCost]) -> str:
    """The cell's lines with their bars, then those of other files; '' where no line was seen."""
    text = clean(source, 40_000).rstrip()
    found = lines_of(text, costs)
    if not found.own and not found.elsewhere:
        return ""
    parts = [_cell_table(text.split("\n"), found.own)] if found.own else []
    for file, dear in found.elsewhere.items():
        rows = "".join(_row(one.line, one.text, [one], one.function) for one in dear)
        parts.append(f'<div style="margin-top:6px">Elsewhere: <b>{escape(clean(file, 80))}</b></div>{_table(rows)}')
    return "".join(parts)


def _cell_table(text: Sequence[str], own: dict[int, list[LineCost]]) -> str:
    shown = range(1, min(len(text), MOST_SOURCE_LINES) + 1)
    rows = "".join(_row(number, text[number - 1], own.get(number, ())) for number in shown)
    left = len(text) - MOST_SOURCE_LINES
    cut = f"<div>and {formatting.count(left, 'more line')}</div>" if left > 0 else ""
    return _table(rows) + cut


def _table(rows: str) -> str:
    style = f"{TABLE};margin:4px 0;{MONO}"
    return f'<div style="overflow-x:auto"><table style="{style}">{rows}</table></div>'


def _row(number: int, text: str, costs: Sequence[LineCost], function: str = "") -> str:
    """One line: its number, its part of the time, a bar with a word, its text."""
    sides = [[one for one in costs if one.in_worker is worker] for worker in (False, True)]
    bars = [_bar(side) for side in sides if sum(one.share for one in side) >= SEEN_SHARE]
    figures = "".join(f"<div>{figure}</div>" for figure, _ in bars)
    drawn = "".join(f"<div>{bar}</div>" for _, bar in bars)
    where = f' <span style="{MUTED}">in {escape(clean(function, 80))}</span>' if function else ""
    return (
        f'<tr style="background:transparent"><td style="{_PAD};text-align:right;{MUTED}">{number}</td>'
        f'<td style="{_PAD};text-align:right">{figures}</td><td style="{_PAD};text-align:left">{drawn}</td>'
        f'<td style="{_PAD};text-align:left;white-space:pre">{escape(clean(text, 200))}{where}</td></tr>'
    )


def _bar(costs: Sequence[LineCost]) -> tuple[str, str]:
    """Figure and bar of a line's costs, all of the training thread or all of workers."""
    total = sum(one.share for one in costs)
    dearest = max(costs, key=lambda one: one.share)
    phase = dearest.phase if dearest.phase in PHASE_COLOURS else "other"
    said = WORKER_WORDS if dearest.in_worker else PHASE_LABELS[phase]
    blocks = "█" * min(round(total * _BLOCKS), _BLOCKS) or "▏"
    bar = f'<span style="color:{PHASE_COLOURS[phase]}">{blocks}</span> <span style="{MUTED}">{said}</span>'
    return formatting.share(total), bar

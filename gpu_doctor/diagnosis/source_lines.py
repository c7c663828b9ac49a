"""Time line by line, as HTML: the cell's source with a bar for each line, and the costliest lines of other files.

Lines of the training thread have shares of the wall-clock. Lines sampled inside a loader's workers have shares of the
fetch, which runs in parallel with the loop, so they are shown separately.
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
"""Most lines that are shown of all other files together."""
SEEN_SHARE: Final = 0.005
"""Smallest share for which a line of the cell gets a bar; a line of another file needs twice as much to be listed."""
WORKER_WORDS: Final = "in worker, share of the fetch"
_BLOCKS: Final = 16
_PAD: Final = "padding:0 10px 0 0;white-space:nowrap;border:none;background:transparent;vertical-align:top"


@dataclass(frozen=True)
class Lines:
    """Line costs sorted by where they stand."""

    own: dict[int, list[LineCost]]
    """Number of a line of the cell -> its costs."""
    elsewhere: dict[str, list[LineCost]]
    """Display name of another file -> its costliest lines, costliest first."""


def lines_of(source: str, costs: Sequence[LineCost]) -> Lines:
    """Sorts line costs into lines of the cell and lines of other files.

    The cell's file is the one whose lines read like the cell's own text and cost the most.
    """
    text = source.rstrip().split("\n")
    same = [cost for cost in costs if _reads_alike(cost, text)]
    weight: dict[str, float] = {}
    for cost in same:
        weight[cost.file] = weight.get(cost.file, 0.0) + cost.share
    cell = max(weight, key=lambda file: weight[file], default=None)
    own: dict[int, list[LineCost]] = {}
    for cost in (cost for cost in same if cost.file == cell):
        own.setdefault(cost.line, []).append(cost)
    others = [cost for cost in costs if cost.file != cell and cost.share >= 2 * SEEN_SHARE]
    others = sorted(others, key=lambda cost: -cost.share)[:MOST_ELSEWHERE]
    elsewhere: dict[str, list[LineCost]] = {}
    for cost in others:
        elsewhere.setdefault(_display_name(cost.file, [other.file for other in others]), []).append(cost)
    return Lines(own, elsewhere)


def _reads_alike(cost: LineCost, text: Sequence[str]) -> bool:
    """True if the cell's text has the same line at the same number."""
    return 0 < cost.line <= len(text) and bool(cost.text) and text[cost.line - 1].strip() == clean(cost.text).strip()


def _display_name(file: str, among: Sequence[str]) -> str:
    """Returns the name to show for a file: `another cell`, or its name, with its folder if two files share the name."""
    if is_cell(file):
        cells = list(dict.fromkeys(name for name in among if is_cell(name)))
        return "another cell" if len(cells) == 1 else f"another cell ({cells.index(file) + 1})"
    path = PurePath(clean(file, 400))
    alike = {other for other in among if PurePath(other).name == path.name}
    return path.name if len(alike) == 1 else str(PurePath(*path.parts[-2:]))


def is_cell(file: str) -> bool:
    """True for a file name that a notebook or a case made up for a cell."""
    return "ipykernel" in file or file.startswith(("<ipython-input", "<gpu_doctor", "<cell"))


def body(source: str, costs: Sequence[LineCost]) -> str:
    """Renders the cell's lines with their bars, then the lines of other files; "" if no line was sampled."""
    text = clean(source, 40_000).rstrip()
    found = lines_of(text, costs)
    if not found.own and not found.elsewhere:
        return ""
    parts = [_cell_table(text.split("\n"), found.own)] if found.own else []
    for file, listed in found.elsewhere.items():
        rows = "".join(_row(cost.line, cost.text, [cost], cost.function) for cost in listed)
        parts.append(f'<div style="margin-top:6px">Elsewhere: <b>{escape(clean(file, 80))}</b></div>{_table(rows)}')
    return "".join(parts)


def _cell_table(text: Sequence[str], own: dict[int, list[LineCost]]) -> str:
    """Renders the table of the cell's lines, of which the first 200 are shown."""
    shown = range(1, min(len(text), MOST_SOURCE_LINES) + 1)
    rows = "".join(_row(number, text[number - 1], own.get(number, ())) for number in shown)
    more = len(text) - MOST_SOURCE_LINES
    cut = f"<div>and {formatting.count(more, 'more line')}</div>" if more > 0 else ""
    return _table(rows) + cut


def _table(rows: str) -> str:
    """Wraps table rows in a table that scrolls sideways."""
    style = f"{TABLE};margin:4px 0;{MONO}"
    return f'<div style="overflow-x:auto"><table style="{style}">{rows}</table></div>'


def _row(number: int, text: str, costs: Sequence[LineCost], function: str = "") -> str:
    """Renders one line as a table row: its number, its share of the time, a bar with a word, its text."""
    sides = [[cost for cost in costs if cost.in_worker is worker] for worker in (False, True)]
    bars = [_bar(side) for side in sides if sum(cost.share for cost in side) >= SEEN_SHARE]
    figures = "".join(f"<div>{figure}</div>" for figure, _ in bars)
    drawn = "".join(f"<div>{bar}</div>" for _, bar in bars)
    where = f' <span style="{MUTED}">in {escape(clean(function, 80))}</span>' if function else ""
    return (
        f'<tr style="background:transparent"><td style="{_PAD};text-align:right;{MUTED}">{number}</td>'
        f'<td style="{_PAD};text-align:right">{figures}</td><td style="{_PAD};text-align:left">{drawn}</td>'
        f'<td style="{_PAD};text-align:left;white-space:pre">{escape(clean(text, 200))}{where}</td></tr>'
    )


def _bar(costs: Sequence[LineCost]) -> tuple[str, str]:
    """Returns the figure and the bar for a line's costs, which are all of the training thread or all of workers."""
    total = sum(cost.share for cost in costs)
    costliest = max(costs, key=lambda cost: cost.share)
    phase = costliest.phase if costliest.phase in PHASE_COLOURS else "other"
    label = WORKER_WORDS if costliest.in_worker else PHASE_LABELS[phase]
    blocks = "█" * min(round(total * _BLOCKS), _BLOCKS) or "▏"
    bar = f'<span style="color:{PHASE_COLOURS[phase]}">{blocks}</span> <span style="{MUTED}">{label}</span>'
    return formatting.share(total), bar

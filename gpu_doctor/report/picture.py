"""The summary of a report as a PNG, for places that show only images: its words, the bar of a step, the trials.

Drawn by Pillow, which bokeh brings, on white, twice as fine as it is shown. Colours are those of the report; a colour
never stands alone: the legend names the phases in the order of the bar.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.formatting import PHASE_LABELS
from gpu_doctor.report.before_after import BeforeAfter
from gpu_doctor.report.svg import PHASE_COLOURS, ink

WIDTH: Final = 1000
"""Of the picture, in the pixels in which it is shown."""
FINE: Final = 2
"""Pixels drawn for one that is shown."""
MOST_ROWS: Final = 12
"""Of the table: the first, which the others are measured against, and the newest."""
_EDGE: Final = 16
_BAR: Final = 30
_GAP: Final = 14
_WIDEST: Final = 200
"""Of a column; what is longer breaks into lines."""
_TALLEST: Final = 3000
_INK: Final = "#1f2328"
_PALE: Final = "#59636e"
_RULE: Final = "#d1d9e0"
_COLOURS: Final = 64
_OTHER_LETTERS: Final[Mapping[str, str]] = {"→": "->", "▲": "+", "▼": "-", "⚠": "!", "≤": "<=", "≥": ">="}
"""For a font that has few."""
_NARROW: Final = str.maketrans({"\u00a0": " ", "\u202f": " ", "\ufe0e": "", "\ufe0f": ""})


@dataclass(frozen=True)
class Summary:
    """What is drawn, in words."""

    head: Sequence[str]
    result: str
    """What trials proved; empty for nothing."""
    verdict: str
    todo: Sequence[str]
    accent: str
    """A colour."""
    step: str
    """How long a mean step takes."""
    phases: Sequence[tuple[str, float, float]]
    """Phase, share of the step, seconds."""
    compared: BeforeAfter | None
    """Both sides of the newest trial; None before any."""
    table: Sequence[Sequence[str]]
    """Head and rows; empty for none."""
    foot: str


def drawn(summary: Summary) -> bytes:
    """The picture, a PNG that is shown `WIDTH` wide.

    Raises:
        ImportError: where there is no Pillow.
    """
    sheet = _Sheet()
    for line in summary.head:
        sheet.write(line, 12, pale=True)
    sheet.rule()
    top = sheet.y
    for said in (summary.result, summary.verdict):
        sheet.write(said, 17, bold=True)
    for line in summary.todo:
        sheet.write(line.strip(), 13)
    sheet.box(0, top, 5, sheet.y - top, summary.accent)
    if summary.phases:
        sheet.rule()
        _anatomy(sheet, summary)
    if summary.compared is not None:
        sheet.rule()
        _before_after(sheet, summary.compared)
    if summary.table:
        sheet.rule()
        _table(sheet, summary.table)
    sheet.rule()
    sheet.write(summary.foot, 11, pale=True)
    return sheet.png()


def _anatomy(sheet: _Sheet, summary: Summary) -> None:
    sheet.write(f"Anatomy of a step, {summary.step}", 13)
    _bar(sheet, summary.phases)
    at = float(_EDGE)
    for phase, share, seconds in summary.phases:
        said = f"{PHASE_LABELS[phase]} {formatting.seconds(seconds)} {formatting.share(share)}"
        if at + 36 + sheet.length(said, 12) > WIDTH - _EDGE:
            at, sheet.y = float(_EDGE), sheet.y + 18
        sheet.box(at, sheet.y + 3, 11, 11, PHASE_COLOURS[phase])
        sheet.put(at + 16, sheet.y, said, 12)
        at += 36 + sheet.length(said, 12)
    sheet.y += 20


def _before_after(sheet: _Sheet, compared: BeforeAfter) -> None:
    """Two bars to one time scale."""
    sheet.write(f"Before and after, {compared.of}", 13)
    for one in compared.sides:
        sheet.write(f"{one.label} {one.total}", 12)
        _bar(sheet, one.phases, one.step_s / compared.scale_s)
        sheet.write(one.spread, 11, pale=True)


def _bar(sheet: _Sheet, phases: Sequence[tuple[str, float, float]], part: float = 1.0) -> None:
    """A piece for each phase; the whole is that part of the sheet's width."""
    at, wide = float(_EDGE), part * (WIDTH - 2 * _EDGE)
    total = sum(share for _, share, _ in phases) or 1.0
    for phase, share, _ in phases:
        length = share / total * wide
        sheet.box(at, sheet.y, max(length - 1, 1), _BAR, PHASE_COLOURS[phase])  # a white line between two
        for said in (f"{PHASE_LABELS[phase]} {formatting.share(share)}", PHASE_LABELS[phase]):
            if sheet.length(said, 12, True) + 10 < length:
                sheet.put(at + (length - sheet.length(said, 12, True)) / 2, sheet.y + 8, said, 12, True, ink(phase))
                break
        at += length
    sheet.y += _BAR + 6


def _table(sheet: _Sheet, table: Sequence[Sequence[str]]) -> None:
    """Settings to the left, figures to the right, as far as the columns have room."""
    shown = [*table[:2], *table[2:][-(MOST_ROWS - 1) :]]
    lines = [[sheet.broken(cell, 12, _WIDEST) for cell in row] for row in shown]
    widths = [max(sheet.length(line, 12) for row in lines for line in row[i]) for i in range(len(table[0]))]
    while sum(widths) + _GAP * (len(widths) - 1) > WIDTH - 2 * _EDGE:
        widths.pop()
    for number, row in enumerate(lines):
        at = float(_EDGE)
        for i, wide in enumerate(widths):
            for down, line in enumerate(row[i]):
                x = at if i < 2 else at + wide - sheet.length(line, 12)
                sheet.put(x, sheet.y + 16 * down, line, 12, ink=_INK if number else _PALE)
            at += wide + _GAP
        sheet.y += 16 * max(len(cell) for cell in row[: len(widths)]) + 4
    if len(shown) < len(table):
        sheet.write(f"and {formatting.count(len(table) - len(shown), 'earlier trial')}", 12, pale=True)


class _Sheet:
    """White paper that is written on from the top down; all lengths are in shown pixels."""

    def __init__(self) -> None:
        from PIL import Image, ImageDraw

        self._image: Any = Image.new("RGB", (WIDTH * FINE, _TALLEST * FINE), "white")
        self._draw: Any = ImageDraw.Draw(self._image)
        self.y = 10.0

    def length(self, text: str, size: int, bold: bool = False) -> float:
        return float(self._draw.textlength(_plain(text), font=_font(size, bold))) / FINE

    def put(self, x: float, y: float, text: str, size: int, bold: bool = False, ink: str = _INK) -> None:
        self._draw.text((x * FINE, y * FINE), _plain(text), font=_font(size, bold), fill=ink)

    def box(self, x: float, y: float, wide: float, high: float, colour: str) -> None:
        self._draw.rectangle((x * FINE, y * FINE, (x + wide) * FINE - 1, (y + high) * FINE - 1), fill=colour)

    def rule(self) -> None:
        self.y += 6
        self.box(0, self.y, WIDTH, 1, _RULE)
        self.y += 8

    def write(self, text: str, size: int, bold: bool = False, pale: bool = False) -> None:
        """A paragraph from edge to edge; '' takes no room."""
        for line in self.broken(text, size, WIDTH - 2 * _EDGE, bold) if text else ():
            self.put(_EDGE, self.y, line, size, bold, _PALE if pale else _INK)
            self.y += round(size * 1.45)

    def broken(self, text: str, size: int, most: float, bold: bool = False) -> list[str]:
        """Lines of at most that length; a word that is longer is cut."""
        lines = [""]
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}".strip()
            if not lines[-1] or self.length(longer, size, bold) <= most:
                lines[-1] = longer
            else:
                lines.append(word)
        return [self._cut(line, size, most, bold) for line in lines]

    def _cut(self, line: str, size: int, most: float, bold: bool) -> str:
        if self.length(line, size, bold) <= most:
            return line
        kept = line
        while kept and self.length(f"{kept}...", size, bold) > most:
            kept = kept[:-1]
        return f"{kept}..."

    def png(self) -> bytes:
        """What was written, in few colours and so few bytes."""
        file = io.BytesIO()
        part = self._image.crop((0, 0, WIDTH * FINE, int(min(self.y + 8, _TALLEST)) * FINE))
        part.quantize(_COLOURS).save(file, "PNG", optimize=True)
        return file.getvalue()


def _plain(text: str) -> str:
    text = text.translate(_NARROW)
    if _has_few_letters():
        for one, other in _OTHER_LETTERS.items():
            text = text.replace(one, other)
    return text


@lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> Any:
    """DejaVu where the machine has it, else the one that Pillow brings, which has no bold."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf", size * FINE)
    except OSError:
        pass
    try:
        return ImageFont.load_default(size * FINE)
    except TypeError:  # Pillow before 10.1 has it in one size
        return ImageFont.load_default()


@lru_cache(maxsize=1)
def _has_few_letters() -> bool:
    name = getattr(_font(12, False), "getname", lambda: [""])()[0]
    return not str(name).startswith("DejaVu")

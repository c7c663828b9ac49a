"""What the search for the largest batch found, told: each size with its memory and its samples a second."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final, Protocol

from gpu_doctor import formatting
from gpu_doctor.formatting import clean
from gpu_doctor.report.plan import LIST, MUTED, SECTION, Step, bar, bars

TITLE: Final = "Largest batch that fits: "


class LargestLike(Protocol):
    """What is told of a search, as `batchfinder.Largest` has it; that module stands on a higher floor."""

    @property
    def batch_size(self) -> int | None: ...
    @property
    def best_batch_size(self) -> int | None: ...
    @property
    def limit_bytes(self) -> float | None: ...
    @property
    def tried(self) -> tuple[tuple[int, float | None], ...]: ...
    @property
    def peaks(self) -> tuple[tuple[int, float], ...]: ...
    @property
    def rates(self) -> tuple[tuple[int, float], ...]: ...
    @property
    def sentence(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Size:
    """One batch size that was seen."""

    label: str
    peak: str
    """Its peak of memory, such as `61.0 GiB`; empty where it did not fit."""
    said: str
    """Its samples a second, and what it is: the largest that fits, the best for samples/s."""
    share: float
    """Peak over what the process may take of the card's memory (0..1)."""
    chosen: bool = False


def sizes(largest: LargestLike) -> tuple[Size, ...]:
    """Every size that was seen, rising."""
    peaks: dict[int, float | None] = {**dict(largest.tried), **dict(largest.peaks)}
    rates, limit = dict(largest.rates), largest.limit_bytes
    found = []
    for size in sorted(peaks):
        peak = peaks[size]
        marks = [
            formatting.rate(rates[size]) if size in rates else "",
            "largest that fits" if size == largest.batch_size else "",
            "best for samples/s" if size == largest.best_batch_size else "",
            "did not fit" if peak is None else "",
        ]
        share = round(min(peak / limit, 1.0), 4) if peak is not None and limit else 1.0 if peak is None else 0.0
        chosen = size in (largest.batch_size, largest.best_batch_size)
        held = "" if peak is None else formatting.size(peak)
        found.append(Size(str(size), held, ", ".join(one for one in marks if one), share, chosen))
    return tuple(found)


def largest_html(largest: LargestLike) -> str:
    """The search as a section of the static result; survives notebook sanitizers (see `gpu_doctor.report.as_html`)."""
    rows = "".join(bar(Step(one.label, one.peak, one.said, 0.0, one.share, one.chosen)) for one in sizes(largest))
    body = f"<div><b>Largest batch</b> &nbsp; {escape(sentence(largest))}</div>" + (bars(rows) if rows else "")
    if largest.notes:
        items = "".join(f"<li>{escape(clean(one, 600))}</li>" for one in largest.notes)
        body += f'<div style="{MUTED}">{LIST}{items}</ul></div>'
    return f'<div style="{SECTION}">{body}</div>'


def sentence(largest: LargestLike) -> str:
    """The answer as a sentence without its first words, which are its title."""
    said = clean(largest.sentence, 600).removeprefix(TITLE)
    return said[:1].upper() + said[1:]

"""Shows the results of a sweep, each combination with its gain, and of a search for the largest batch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.elements import MUTED, details, listed, section
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, heading
from gpu_doctor.recording import describe
from gpu_doctor.report.contract import LargestShown, Size, SweepRow, SweepShown
from gpu_doctor.report.plan import bar, bars
from gpu_doctor.trials import Largest, Step, Sweep, sweep_state
from gpu_doctor.trials.compare import BREAKS, UNMEASURED, Effect

FIRST: Final = 8
"""Number of combinations drawn before the fold."""
TITLE: Final = "Largest batch that fits: "


def rows(sweep: Sweep) -> tuple[SweepRow, ...]:
    """Returns the row of the code as written, then one row per combination.

    The combinations come in the grid's order while the sweep runs, and fastest first after it.
    """
    if not sweep.effects:
        return ()
    longest = max([1.0, *(effect.speedup or 0.0 for effect in sweep.effects)])
    ranked = sweep.effects if sweep.running else sorted(sweep.effects, key=lambda effect: -(effect.speedup or 0.0))
    found = [_row(effect, sweep.found is not None and effect is sweep.fastest, longest) for effect in ranked]
    return (SweepRow(LABELS.as_written, "", "", formatting.factor(1.0), "", "", round(1.0 / longest, 4)), *found)


def _row(effect: Effect, best: bool, longest: float) -> SweepRow:
    label, why = clean(describe(effect.settings), 120), clean(effect.reason, 300)
    where = f"measured on {clean(effect.device, 120)}, not on this machine" if effect.elsewhere else ""
    note = "; ".join(part for part in (why, where) if part)
    state = sweep_state(effect)
    if effect.speedup is None or effect.outcome in UNMEASURED:
        return SweepRow(label, state, "", "", "", note, 0.0)
    rate = effect.candidate_samples_per_s
    gain = formatting.speedup(effect.speedup, effect.low, effect.high)
    return SweepRow(
        label,
        state,
        "" if rate is None else f"{formatting.number(rate)} {effect.unit}",
        f"{gain} {effect.verdict_words}",
        effect.loss_words,
        note,
        round(effect.speedup / longest, 4),
        effect.verdict == "faster" and effect.loss_verdict != BREAKS,
        best,
    )


def sweep_shown(sweep: Sweep) -> SweepShown:
    """Converts a sweep to plain data for the page."""
    return SweepShown(
        sentence=_sweep_sentence(sweep),
        rows=rows(sweep),
        first=FIRST,
        later=formatting.count(max(len(sweep.effects) - FIRST, 0), "more combination"),
        notes=tuple(clean(note, 600) for note in sweep.notes),
        settings=sweep.best,
    )


def sweep_html(sweep: Sweep) -> str:
    """Renders the sweep as a section of the static result, in HTML that survives notebook sanitizers."""
    shown = sweep_shown(sweep)
    drawn = [_bar(row) for row in shown.rows]
    later = drawn[shown.first + 1 :]
    folded = details(shown.later, bars(later)) if later else ""
    return titled(LABELS.sweep, shown.sentence, bars(drawn[: shown.first + 1]) + folded, shown.notes)


def _bar(row: SweepRow) -> str:
    parts = (row.state, row.rate, row.losses, row.note)
    return bar(Step(row.setting, row.gain, ", ".join(part for part in parts if part), 0.0, row.share, row.faster))


def titled(title: str, sentence: str, drawn: str, notes: Sequence[str]) -> str:
    """Renders a section of the static result: a title with its sentence, the drawing, and notes."""
    body = f"<div><b>{heading(title)}</b> &nbsp; {escape(sentence)}</div>{drawn}"
    if notes:
        body += f'<div style="{MUTED}">{listed(notes)}</div>'
    return section(body)


def _sweep_sentence(sweep: Sweep) -> str:
    """Returns the headline of the sweep without its first words, which the title has already."""
    return formatting.sentence(clean(sweep.headline, 400).removeprefix("Sweep of "))


def sizes(largest: Largest) -> tuple[Size, ...]:
    """Returns every batch size that was tried, in rising order."""
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
        found.append(Size(str(size), held, ", ".join(mark for mark in marks if mark), share, chosen))
    return tuple(found)


def largest_shown(largest: Largest) -> LargestShown:
    """Converts the result of a search to plain data for the page."""
    size = largest.best_batch_size or largest.batch_size
    return LargestShown(
        sentence=_largest_sentence(largest),
        sizes=sizes(largest),
        notes=tuple(clean(note, 600) for note in largest.notes),
        settings={} if size is None else {"batch_size": size},
    )


def largest_html(largest: Largest) -> str:
    """Renders the search as a section of the static result, in HTML that survives notebook sanitizers."""
    shown = largest_shown(largest)
    return titled(LABELS.largest, shown.sentence, size_bars(shown.sizes), shown.notes)


def size_bars(sizes: Sequence[Size]) -> str:
    """Renders one bar per size, one below the other."""
    return bars([bar(Step(size.label, size.peak, size.said, 0.0, size.share, size.chosen)) for size in sizes])


def _largest_sentence(largest: Largest) -> str:
    """Returns the result of the search without its first words, which the title has already."""
    return heading(clean(largest.sentence, 600).removeprefix(TITLE))

"""What a sweep and a search for the largest batch found, told: every setting with what it gave, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.elements import MUTED, details, listed, section
from gpu_doctor.formatting import clean
from gpu_doctor.labels import LABELS, heading
from gpu_doctor.recording import describe
from gpu_doctor.report.contract import LargestShown, Size, SweepShown, Swept
from gpu_doctor.report.plan import bar, bars
from gpu_doctor.trials import Largest, Step, Sweep, sweep_state
from gpu_doctor.trials.compare import BREAKS, UNMEASURED, Effect

FIRST: Final = 8
"""So many combinations are drawn at once; the rest is folded."""
TITLE: Final = "Largest batch that fits: "


def rows(sweep: Sweep) -> tuple[Swept, ...]:
    """The code as written, then every combination: in the grid's order while it goes on, then the fastest first."""
    if not sweep.effects:
        return ()
    longest = max([1.0, *(one.speedup or 0.0 for one in sweep.effects)])
    ranked = sweep.effects if sweep.running else sorted(sweep.effects, key=lambda one: -(one.speedup or 0.0))
    found = [_row(one, sweep.found is not None and one is sweep.fastest, longest) for one in ranked]
    return (Swept(LABELS.as_written, "", "", formatting.factor(1.0), "", "", round(1.0 / longest, 4)), *found)


def _row(effect: Effect, best: bool, longest: float) -> Swept:
    label, why = clean(describe(effect.settings), 120), clean(effect.reason, 300)
    where = f"measured on {clean(effect.device, 120)}, not on this machine" if effect.elsewhere else ""
    note = "; ".join(part for part in (why, where) if part)
    state = sweep_state(effect)
    if effect.speedup is None or effect.outcome in UNMEASURED:
        return Swept(label, state, "", "", "", note, 0.0)
    rate = effect.candidate_samples_per_s
    gain = formatting.speedup(effect.speedup, effect.low, effect.high)
    return Swept(
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
    """What there is to say of a sweep."""
    return SweepShown(
        sentence=_sweep_sentence(sweep),
        rows=rows(sweep),
        first=FIRST,
        later=formatting.count(max(len(sweep.effects) - FIRST, 0), "more combination"),
        notes=tuple(clean(one, 600) for one in sweep.notes),
        settings=sweep.best,
    )


def sweep_html(sweep: Sweep) -> str:
    """The sweep as a section of the static result; survives notebook sanitizers (see `gpu_doctor.report.as_html`)."""
    said = sweep_shown(sweep)
    drawn = [_bar(one) for one in said.rows]
    later = drawn[said.first + 1 :]
    folded = details(said.later, bars(later)) if later else ""
    return titled(LABELS.sweep, said.sentence, bars(drawn[: said.first + 1]) + folded, said.notes)


def _bar(row: Swept) -> str:
    parts = (row.state, row.rate, row.losses, row.note)
    return bar(Step(row.setting, row.gain, ", ".join(part for part in parts if part), 0.0, row.share, row.faster))


def titled(title: str, sentence: str, drawn: str, notes: Sequence[str]) -> str:
    """A section of the static result: a title with its sentence, what is drawn, and notes."""
    body = f"<div><b>{heading(title)}</b> &nbsp; {escape(sentence)}</div>{drawn}"
    if notes:
        body += f'<div style="{MUTED}">{listed(notes)}</div>'
    return section(body)


def _sweep_sentence(sweep: Sweep) -> str:
    """What the sweep found, as a sentence without its first word, which is its title."""
    return formatting.sentence(clean(sweep.headline, 400).removeprefix("Sweep of "))


def sizes(largest: Largest) -> tuple[Size, ...]:
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


def largest_shown(largest: Largest) -> LargestShown:
    """What there is to say of a search."""
    size = largest.best_batch_size or largest.batch_size
    return LargestShown(
        sentence=_largest_sentence(largest),
        sizes=sizes(largest),
        notes=tuple(clean(one, 600) for one in largest.notes),
        settings={} if size is None else {"batch_size": size},
    )


def largest_html(largest: Largest) -> str:
    """The search as a section of the static result; survives notebook sanitizers (see `gpu_doctor.report.as_html`)."""
    said = largest_shown(largest)
    return titled(LABELS.largest, said.sentence, size_bars(said.sizes), said.notes)


def size_bars(sizes: Sequence[Size]) -> str:
    """A bar for each size, one below the other."""
    return bars([bar(Step(one.label, one.peak, one.said, 0.0, one.share, one.chosen)) for one in sizes])


def _largest_sentence(largest: Largest) -> str:
    """The answer as a sentence without its first words, which are its title."""
    return heading(clean(largest.sentence, 600).removeprefix(TITLE))

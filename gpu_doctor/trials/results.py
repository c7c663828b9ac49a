"""What a sweep found, and the largest batch that fits, as plain data and in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis import MemoryFit, Safety
from gpu_doctor.labels import OUTCOME_LABELS
from gpu_doctor.recording import CLEAN, SettingValue, describe
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.loss_reasons import breaks, differs, unusable

MARGIN: Final = 0.05
"""Part of the memory that the answer leaves free: batches differ, and pieces of memory do not always fit together."""

WAITING, RUNNING = "waiting", "running"
"""Outcomes of what is not decided, while a sweep goes on."""
EARLY: Final = "stopped early"
"""So begins the reason of a combination that ASHA gave up."""


def places(effects: Sequence[Effect]) -> tuple[str, ...]:
    """A sentence on where trials were measured, if that is not this machine."""
    found = dict.fromkeys(formatting.clean(one.device, 120) for one in effects if one.elsewhere)
    return (f"Measured on {'; '.join(found)}, not on this machine.",) if found else ()


def training_changes(names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of some knobs that changes the training: how, such as the learning rate to scale."""
    changing = (knob for knob in map(knobs.known, names) if knob.safety is Safety.CHANGES_TRAINING)
    return tuple(f"{knob.name} changes the training: {knob.changes}" for knob in changing)


def left_behind(effects: Sequence[Effect], clauses: Sequence[str] = ()) -> tuple[str, ...]:
    """Sentences on what trials, and what was measured before them, could not put back."""
    every = (*clauses, *(clause for one in effects for clause in one.not_restored))
    return tuple(dict.fromkeys(map(formatting.sentence, every)))


def _is_faster(effect: Effect) -> bool:
    """Whether a trial says that settings are faster, with losses that are no sign of a fault."""
    return effect.verdict == "faster" and effect.speedup is not None and not unusable(effect)


def sweep_state(effect: Effect) -> str:
    """How far a combination of a sweep came, in a word or two."""
    if effect.outcome in CLEAN:
        return "stopped early" if effect.reason.startswith(EARLY) else "measured"
    return OUTCOME_LABELS.get(effect.outcome, effect.outcome)


@dataclass(frozen=True)
class Sweep:
    """What `Case.sweep` found."""

    effects: tuple[Effect, ...]
    """One a combination, in the order of the grid; a combination that was given up early has that as its `reason`."""
    stopped: bool = False
    """Stop came before every combination had its turn."""
    again: Effect | None = None
    """The fastest combination measured once more, afresh: picked out of many, its first figure flatters. None if none
    was clearly faster, or the sweep ended before."""

    @property
    def fastest(self) -> Effect | None:
        """The effect of the combination that came out fastest, clearly faster than the code as written; None if none.

        One whose losses break, or differ for no known reason, is never it, however fast.
        """
        faster = [one for one in self.effects if _is_faster(one)]
        return max(faster, key=lambda one: one.speedup or 0.0, default=None)

    @property
    def found(self) -> Effect | None:
        """What is verified: the fastest combination's second, fresh effect; None where that did not confirm it."""
        return self.again if self.again is not None and _is_faster(self.again) else None

    @property
    def best(self) -> dict[str, SettingValue]:
        """The settings of the combination that is verified; empty (as written) if none is."""
        return dict(self.found.settings) if self.found is not None else {}

    @property
    def speedup(self) -> float:
        """Samples/s with `best` over samples/s as written, measured afresh; 1 where the code as written is best."""
        return (self.found.speedup or 1.0) if self.found is not None else 1.0

    @property
    def ties(self) -> tuple[dict[str, SettingValue], ...]:
        """Combinations that were not told apart from the best one: their interval reaches into that of the best."""
        best = self.fastest if self.found is not None else None
        if best is None or best.low is None:
            return ()
        others = [one for one in self.effects if one is not best and not breaks(one)]
        reaching = [one for one in others if one.high is not None and one.high >= best.low]
        return tuple(dict(one.settings) for one in reaching)

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for effect in self.effects for name in effect.settings))
        rows = [[*names, "samples/s", "vs the code as written", ""]]
        for effect in sorted(self.effects, key=lambda one: -(one.speedup or 0.0)):
            rate = effect.candidate_samples_per_s
            unit = "" if effect.unit == "samples/s" else f" {effect.unit}"
            mark = "best" if self.found is not None and effect is self.fastest else ""
            rows.append(
                [
                    *(str(effect.settings.get(name, "")) for name in names),
                    formatting.DASH if rate is None else f"{formatting.number(rate)}{unit}",
                    effect._judgement() + (f", {effect.loss_words}" if differs(effect) or breaks(effect) else ""),
                    mark,
                ]
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.headline, *table, *places(self.effects), *self.notes])

    @property
    def running(self) -> bool:
        """It goes on: some combination is not decided."""
        return self.decided < len(self.effects)

    @property
    def decided(self) -> int:
        """So many combinations are decided."""
        return sum(one.outcome not in (WAITING, RUNNING) for one in self.effects)

    @property
    def headline(self) -> str:
        """What was found, without a full stop: `Sweep of 6 combinations: num_workers=4 is best, 2.10x (1.9-2.3)`."""
        tried = f"Sweep of {formatting.count(len(self.effects), 'combination')}"
        if self.running:
            return f"{tried}: {self.decided} decided so far"
        if self.stopped:
            tried += ", stopped early"
        if self.found is not None:
            gain = formatting.speedup(self.speedup, self.found.low, self.found.high)
            losses = f", {self.found.loss_words}" if self.found.loss_changed else ""
            return f"{tried}: {formatting.clean(describe(self.best))} is best, {gain} when measured again{losses}"
        if self.fastest is None:
            return f"{tried}: none is clearly faster than the code as written"
        looked = f"{formatting.clean(describe(self.fastest.settings))} came out fastest"
        if self.again is None:
            return f"{tried}: {looked} and was not measured again"
        return f"{tried}: {looked}, and measuring it again did not confirm that"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the trials left, what was not told apart from the best, and what changes the training."""
        every = self.effects if self.again is None else (*self.effects, self.again)
        notes = [*left_behind(every)]
        if self.fastest is not None and self.again is not None and self.found is None:
            notes.append(f"Measured again: {self.again}")
        if self.ties:
            notes.append(
                "Not clearly slower than the best: " + "; ".join(formatting.clean(describe(one)) for one in self.ties)
            )
        turned = dict.fromkeys(name for effect in self.effects for name in effect.settings)
        return (*notes, *training_changes(turned))

    _repr_pretty_ = formatting.pretty

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain data (numbers, strings, None, lists and mappings of them)."""
        return {
            "best": self.best,
            "speedup": self.speedup,
            "ties": [dict(one) for one in self.ties],
            "stopped": self.stopped,
            "again": None if self.again is None else self.again.to_dict(),
            "effects": [one.to_dict() for one in self.effects],
        }


@dataclass(frozen=True)
class Largest:
    """What `largest_batch` found."""

    batch_size: int | None
    """The largest that ran within the limit; None where none was tried, see `reason`."""
    peak_bytes: float | None = None
    """Its peak."""
    limit_bytes: float | None = None
    """What this process may take of the card's memory; the answer leaves MARGIN of it free."""
    fit: MemoryFit | None = None
    tried: tuple[tuple[int, float | None], ...] = ()
    """Batch size and peak of each trial, in order; None = it did not fit."""
    reason: str = ""
    """Why there is no answer, or why it may not be the largest."""
    best_batch_size: int | None = None
    """Of the sizes that ran within the limit, the smallest within 3 % of the most samples/s; None = no speed read."""
    best_samples_per_s: float | None = None
    rates: tuple[tuple[int, float], ...] = ()
    """Batch size and samples/s of each size that ran within the limit, the one as written among them, rising."""
    peaks: tuple[tuple[int, float], ...] = ()
    """Batch size and peak bytes of each size that ran, the one as written among them, rising."""
    notes: tuple[str, ...] = ()
    """Sentences on what the trials could not put back."""

    def __str__(self) -> str:
        return " ".join([self.sentence, *(formatting.clean(one) for one in self.notes)])

    _repr_pretty_ = formatting.pretty

    @property
    def sentence(self) -> str:
        """The answer in words, without the notes."""
        if self.batch_size is None:
            return f"Largest batch that fits: not known. {formatting.clean(self.reason)}"
        room = f", {formatting.size(self.peak_bytes)} of {formatting.size(self.limit_bytes)}" if self.peak_bytes else ""
        said = f"Largest batch that fits: {self.batch_size} ({formatting.share(MARGIN)} left free{room})."
        if self.best_batch_size is not None:
            rate = formatting.rate(self.best_samples_per_s)
            largest = dict(self.rates).get(self.batch_size)
            beside = (
                f"; {self.batch_size}: {formatting.rate(largest)}" if self.best_batch_size != self.batch_size else ""
            )
            said += f" Best for samples/s: {self.best_batch_size} ({rate}{beside})."
        trials = formatting.count(len(self.tried), "trial")
        return f"{said} Found in {trials}.{f' {formatting.clean(self.reason)}' if self.reason else ''}"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data (numbers, strings, lists, None), ready for JSON."""
        plain = asdict(self)
        return {
            name: [list(one) if isinstance(one, tuple) else one for one in value] if isinstance(value, tuple) else value
            for name, value in plain.items()
        }

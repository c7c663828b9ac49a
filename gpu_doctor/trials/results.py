"""The results of a sweep and of a search for the largest batch, as plain data and in words."""

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
"""Part of the memory that the largest batch must leave free: batches differ, and memory fragments."""

WAITING, RUNNING = "waiting", "running"
"""Outcomes of undecided combinations while a sweep runs."""
EARLY: Final = "stopped early"
"""Beginning of the reason of a combination that ASHA stopped early."""


def places(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Returns a sentence on where trials were measured, if that is not this machine."""
    found = dict.fromkeys(formatting.clean(effect.device, 120) for effect in effects if effect.elsewhere)
    return (f"Measured on {'; '.join(found)}, not on this machine.",) if found else ()


def training_changes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns a sentence for each knob that changes the training, such as the learning rate to scale."""
    changing = (knob for knob in map(knobs.known, names) if knob.safety is Safety.CHANGES_TRAINING)
    return tuple(f"{knob.name} changes the training: {knob.changes}" for knob in changing)


def left_behind(effects: Sequence[Effect], clauses: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns sentences on what trials, and the measurements before them, could not restore."""
    every = (*clauses, *(clause for effect in effects for clause in effect.not_restored))
    return tuple(dict.fromkeys(map(formatting.sentence, every)))


def _is_faster(effect: Effect) -> bool:
    """Returns True if a trial found its settings faster, and its losses show no fault."""
    return effect.verdict == "faster" and effect.speedup is not None and not unusable(effect)


def sweep_state(effect: Effect) -> str:
    """Returns the state of a combination of a sweep in a word or two."""
    if effect.outcome in CLEAN:
        return "stopped early" if effect.reason.startswith(EARLY) else "measured"
    return OUTCOME_LABELS.get(effect.outcome, effect.outcome)


@dataclass(frozen=True)
class Sweep:
    """The result of `Case.sweep`."""

    effects: tuple[Effect, ...]
    """Effects of the combinations, in the order of the grid. The `reason` says if a combination was stopped early."""
    stopped: bool = False
    """True if Stop was pressed before every combination was tried."""
    again: Effect | None = None
    """Second measurement of the fastest combination, because the first figure of a pick out of many is too good. None
    if no combination was clearly faster, or if the sweep ended before."""

    @property
    def fastest(self) -> Effect | None:
        """The effect of the fastest combination that is clearly faster than the code as written; None if there is none.

        Combinations whose losses break, or differ for no known reason, are excluded, however fast they are.
        """
        faster = [effect for effect in self.effects if _is_faster(effect)]
        return max(faster, key=lambda effect: effect.speedup or 0.0, default=None)

    @property
    def found(self) -> Effect | None:
        """The verified effect: the second measurement of the fastest combination; None if that did not confirm it."""
        return self.again if self.again is not None and _is_faster(self.again) else None

    @property
    def best(self) -> dict[str, SettingValue]:
        """The settings of the verified combination; empty (as written) if there is none."""
        return dict(self.found.settings) if self.found is not None else {}

    @property
    def speedup(self) -> float:
        """Samples/s with `best` over samples/s as written, from the second measurement; 1 if nothing is verified."""
        return (self.found.speedup or 1.0) if self.found is not None else 1.0

    @property
    def ties(self) -> tuple[dict[str, SettingValue], ...]:
        """The combinations that may be as fast as the best: their intervals overlap with its interval."""
        best = self.fastest if self.found is not None else None
        if best is None or best.low is None:
            return ()
        others = [effect for effect in self.effects if effect is not best and not breaks(effect)]
        reaching = [effect for effect in others if effect.high is not None and effect.high >= best.low]
        return tuple(dict(effect.settings) for effect in reaching)

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for effect in self.effects for name in effect.settings))
        rows = [[*names, "samples/s", "vs the code as written", ""]]
        for effect in sorted(self.effects, key=lambda effect: -(effect.speedup or 0.0)):
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
        """True while a combination is undecided."""
        return self.decided < len(self.effects)

    @property
    def decided(self) -> int:
        """The number of decided combinations."""
        return sum(effect.outcome not in (WAITING, RUNNING) for effect in self.effects)

    @property
    def headline(self) -> str:
        """The result without a full stop: `Sweep of 6 combinations: num_workers=4 is best, 2.10x (1.9-2.3)`."""
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
        came_first = f"{formatting.clean(describe(self.fastest.settings))} came out fastest"
        if self.again is None:
            return f"{tried}: {came_first} and was not measured again"
        return f"{tried}: {came_first}, and measuring it again did not confirm that"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the trials could not restore, ties with the best, and changes to the training."""
        every = self.effects if self.again is None else (*self.effects, self.again)
        notes = [*left_behind(every)]
        if self.fastest is not None and self.again is not None and self.found is None:
            notes.append(f"Measured again: {self.again}")
        if self.ties:
            notes.append(
                "Not clearly slower than the best: "
                + "; ".join(formatting.clean(describe(settings)) for settings in self.ties)
            )
        turned = dict.fromkeys(name for effect in self.effects for name in effect.settings)
        return (*notes, *training_changes(turned))

    _repr_pretty_ = formatting.pretty

    def to_dict(self) -> dict[str, Any]:
        """Returns the sweep as plain data (numbers, strings, None, lists and mappings of them)."""
        return {
            "best": self.best,
            "speedup": self.speedup,
            "ties": [dict(settings) for settings in self.ties],
            "stopped": self.stopped,
            "again": None if self.again is None else self.again.to_dict(),
            "effects": [effect.to_dict() for effect in self.effects],
        }


@dataclass(frozen=True)
class Largest:
    """The result of `largest_batch`."""

    batch_size: int | None
    """Largest batch that ran within the limit; None if there is none, see `reason`."""
    peak_bytes: float | None = None
    """Peak memory with that batch, in bytes."""
    limit_bytes: float | None = None
    """Bytes of the card's memory that this process may use; the largest batch leaves MARGIN of it free."""
    fit: MemoryFit | None = None
    tried: tuple[tuple[int, float | None], ...] = ()
    """Batch size and peak memory in bytes of each trial, in order; None if the batch did not fit."""
    reason: str = ""
    """Reason why there is no result, or why a larger batch may fit."""
    best_batch_size: int | None = None
    """Smallest size within the limit that reaches the highest samples/s to within 3 %; None if no speed was read."""
    best_samples_per_s: float | None = None
    rates: tuple[tuple[int, float], ...] = ()
    """Batch size and samples/s of each size that ran within the limit, including the size as written, rising."""
    peaks: tuple[tuple[int, float], ...] = ()
    """Batch size and peak bytes of each size that ran, including the size as written, rising."""
    notes: tuple[str, ...] = ()
    """Sentences on what the trials could not restore."""

    def __str__(self) -> str:
        return " ".join([self.sentence, *(formatting.clean(effect) for effect in self.notes)])

    _repr_pretty_ = formatting.pretty

    @property
    def sentence(self) -> str:
        """The result in words, without the notes."""
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
            name: [list(effect) if isinstance(effect, tuple) else effect for effect in value]
            if isinstance(value, tuple)
            else value
            for name, value in plain.items()
        }

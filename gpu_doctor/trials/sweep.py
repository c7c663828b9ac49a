"""A sweep: every combination of a grid of settings against the code as written, the clearly worse given up early."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import SettingValue, describe
from gpu_doctor.trials import knobs, run
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import Executor, InKernel, tried
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.loss_reasons import breaks, differs

if TYPE_CHECKING:
    from gpu_doctor.trials.case import Case


@dataclass(frozen=True)
class Sweep:
    """What `Case.sweep` found."""

    effects: tuple[Effect, ...]
    """One a combination, in the order of the grid; a combination that was given up early has that as its `reason`."""
    stopped: bool = False
    """Stop came before every combination had its turn."""

    @property
    def found(self) -> Effect | None:
        """The effect of the fastest combination that is verified faster than the code as written; None if none is.

        One whose losses become NaN or infinite is never it, however fast.
        """
        faster = [
            one for one in self.effects if one.verdict == "faster" and one.speedup is not None and not breaks(one)
        ]
        return max(faster, key=lambda one: one.speedup or 0.0, default=None)

    @property
    def best(self) -> dict[str, SettingValue]:
        """The settings of the fastest combination that is verified; empty (as written) if none is faster."""
        return dict(self.found.settings) if self.found is not None else {}

    @property
    def speedup(self) -> float:
        """Samples/s with `best` over samples/s as written; 1 where the code as written is best."""
        return (self.found.speedup or 1.0) if self.found is not None else 1.0

    @property
    def ties(self) -> tuple[dict[str, SettingValue], ...]:
        """Combinations that were not told apart from the best one: their interval reaches into that of the best."""
        best = self.found
        if best is None or best.low is None:
            return ()
        others = [one for one in self.effects if one is not best and not breaks(one)]
        reaching = [one for one in others if one.high is not None and one.high >= best.low]
        return tuple(dict(one.settings) for one in reaching)

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for effect in self.effects for name in effect.settings))
        rows = [[*names, "samples/s", "against as written", ""]]
        for effect in sorted(self.effects, key=lambda one: -(one.speedup or 0.0)):
            rate = effect.candidate_samples_per_s
            unit = "" if effect.unit == "samples/s" else f" {effect.unit}"
            mark = "best" if effect is self.found else ""
            rows.append(
                [
                    *(str(effect.settings.get(name, "")) for name in names),
                    "-" if rate is None else f"{rate:.4g}{unit}",
                    effect._judgement() + (f", {effect.loss_words}" if differs(effect) or breaks(effect) else ""),
                    mark,
                ]
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        table = ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([self.headline, *table, *self.notes])

    @property
    def headline(self) -> str:
        """What was found, without a full stop: `Sweep of 6 combinations: num_workers=4 is best, 2.10x (1.9-2.3)`."""
        tried = f"Sweep of {formatting.count(len(self.effects), 'combination')}"
        if self.stopped:
            tried += ", stopped before its end"
        if self.found is None:
            return f"{tried}: none is verified faster than the code as written"
        one = self.found
        gain = formatting.speedup(self.speedup, one.low, one.high)
        return f"{tried}: {formatting.clean(describe(self.best))} is best, {gain}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the trials left, what was not told apart from the best, and what changes the training."""
        written = (path for one in self.effects for path in one.written)
        notes = list(formatting.left_behind(written, (clause for one in self.effects for clause in one.not_restored)))
        if self.ties:
            notes.append("Not told apart from it: " + "; ".join(formatting.clean(describe(one)) for one in self.ties))
        for name in dict.fromkeys(name for effect in self.effects for name in effect.settings):
            knob = knobs.known(name)
            if knob.safety is Safety.CHANGES_TRAINING:
                notes.append(f"{name} changes the training: {knob.changes}")
        return tuple(notes)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows of it."""
        printer.text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain data (numbers, strings, None, lists and mappings of them)."""
        return {
            "best": self.best,
            "speedup": self.speedup,
            "ties": [dict(one) for one in self.ties],
            "stopped": self.stopped,
            "effects": [one.to_dict() for one in self.effects],
        }


def sweep(
    case: Case,
    grid: Mapping[str, Sequence[SettingValue]],
    *,
    steps: int,
    seconds: float,
    executor: Executor | None,
    max_trials: int,
) -> Sweep:
    """Tries every combination of a grid against the code as written.

    Args:
        case: whose code; its namespace is afterwards as it was.
        grid: knob -> the values to try, such as `{"num_workers": [0, 2, 4], "batch_size": [32, 64]}`.
        steps: of one side of one round. seconds: of one combination's trial, at most.
        executor: where the trials run; None = in this kernel.
        max_trials: refuses a grid of more combinations.

    Returns:
        The effects, and the best settings among them; also the newest of `case.sweeps`.

    Raises:
        ValueError: one sentence on what is wrong with the grid, or if steps or seconds are not positive.
        TypeError: if the grid is no mapping of knobs to lists.
        KeyboardInterrupt: if it is interrupted, after everything was put back; what was tried until then is the newest
            of `case.sweeps`.
    """
    run.check_budget(steps, seconds)
    candidates = combinations(grid, max_trials)
    executor = executor or InKernel()
    before = len(case.effects)
    try:
        budget: dict[str, Any] = {"steps": steps, "seconds": seconds, "against": {}}
        effects = tried(executor, case, candidates, racing=True, **budget)
    except KeyboardInterrupt:
        case.sweeps.append(Sweep(tuple(case.effects[before:]), stopped=True))
        raise
    case.sweeps.append(Sweep(tuple(effects), stopped=case.stopped))
    return case.sweeps[-1]


def combinations(grid: Mapping[str, Sequence[SettingValue]], most: int) -> list[dict[str, SettingValue]]:
    """Every combination of a grid, the last knob turning fastest; values that are given twice count once.

    Raises:
        ValueError: if the grid is empty, names what is no knob, has a knob without values, or is too large.
        TypeError: if it is no mapping of knobs to lists.
    """
    form = "{'num_workers': [0, 2, 4], 'batch_size': [32, 64]}"
    if not isinstance(grid, Mapping):
        raise TypeError(f"A sweep takes a dict of knobs and the values to try, such as {form}, not {grid!r:.60}.")
    if not grid:
        raise ValueError(f"A sweep needs at least one knob with the values to try, such as {form}.")
    axes: list[list[tuple[str, SettingValue]]] = []
    for name, values in grid.items():
        try:
            knobs.known(name)
        except Refused as unknown:
            raise ValueError(str(unknown)) from None
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TypeError(f"The values of {name} are a list, such as {form}, not {values!r:.60}.")
        if not values:
            raise ValueError(f"{name} has no values to try: give at least one, or leave it out.")
        axes.append([(name, value) for value in _once_each(values)])
    count = math.prod(len(axis) for axis in axes)
    if count > most:
        raise ValueError(
            f"The grid has {count} combinations, and a sweep takes {most}: give fewer values, or max_trials={count}."
        )
    return [dict(one) for one in itertools.product(*axes)]


def _once_each(values: Sequence[SettingValue]) -> list[SettingValue]:
    """Values in order without repeats; True and 1 are two values."""
    kept: list[SettingValue] = []
    for value in values:
        if not any(type(value) is type(one) and value == one for one in kept):
            kept.append(value)
    return kept

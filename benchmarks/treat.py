"""Does a treatment find the best settings? Each program of the corpus that a knob cures, against an exhaustive grid of
its knobs.

Run: `.venv/bin/python -m benchmarks.treat [--only NAME ...] [--quick] [--json FILE]`. Per cell: `case.treat()` as a
user calls it; then every combination of the cell's safe knobs, timed in turns with the code as written; then whole
runs of the grid's best ones, of which the best meets the treatment's choice in pairs of new runs: these judge it. Aim:
in every cell at least 95 % of the best configuration's samples/s, and in all cells together at most a third of the
grids' trials.

The grid has what the panel offers for the safe knobs `AXES`. Left out: `compile` (minutes a combination on two cores;
`--axes` takes it), and what cannot act on a CPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

import gpu_doctor
from benchmarks.grid import AXES, QUICK, Budget, Clock, Config, duel, finals, grid_of, searched
from gpu_doctor.recording import Settings, Setup
from tools.evaluate.program import CORPUS, Program, programs
from tools.evaluate.timing import as_it_was, longer

KNOB_RULES: Final = {
    *("loader-without-workers", "too-few-workers", "too-many-workers", "workers-restart-each-epoch", "uneven-batches"),
    *("unfused-optimizer", "cpu-oversubscription"),
}
"""Rules that prescribe a knob where the loop allows it: a cell that one of them should name is a candidate."""
SHARE_BAR: Final = 0.95
TRIALS_BAR: Final = 1 / 3
FINALISTS: Final = 3
"""So many of the grid's best meet the treatment's choice: the first by a hair may owe it to the machine's mood, or to
batches that lie ready when its run ends."""


@dataclass
class Row:
    """One cell."""

    name: str
    grid: int = 0
    """Combinations besides the code as written: what a search through all of them would try."""
    best: Config = field(default_factory=dict)
    best_speedup: float = float("nan")
    """Of the final comparison, over the code as written in it."""
    chosen: Config = field(default_factory=dict)
    speedup: float = float("nan")
    said: float = float("nan")
    """What the plan says of itself."""
    share: float = float("nan")
    """Samples/s of the treatment's choice over those of the grid's best."""
    trials: int = 0
    waterfall: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    error: str = ""

    def line(self) -> str:
        """The cell in the table."""
        if self.error:
            return f"{self.name:32} {self.error}"
        took = sum(self.seconds.values())
        return (
            f"{self.name:32} {self.grid:4d}  {self.best_speedup:5.2f}x {_short(self.best):44} "
            f"{self.speedup:5.2f}x {_short(self.chosen):44} {100 * self.share:5.0f} % "
            f"{self.trials:3d} of {self.grid:<3d} {took:4.0f} s"
        )


HEAD: Final = (
    f"{'cell':32} {'grid':>4}  {'best of the grid':51} {'treatment':51} {'share':>7} {'trials':>10} {'took':>6}"
)
_SHORT: Final = {
    "num_workers": "workers",
    "prefetch_factor": "prefetch",
    "persistent_workers": "persistent",
    "fused_optimizer": "fused",
}


def _short(settings: Settings) -> str:
    return " ".join(f"{_SHORT.get(name, name)}={value}" for name, value in settings.items()) or "as written"


def curable() -> list[Program]:
    """The sick programs of the corpus that settings cure: as their truth says, or for want of a patch."""
    sick = [one for one in programs(CORPUS) if not one.healthy]
    return [one for one in sick if one.settings or (one.cured is None and KNOB_RULES & {*one.causes})]


def examine(cell: Program, budget: Budget, axes: Sequence[str]) -> Row:
    """One cell; what goes wrong is told in its row."""
    row = Row(cell.name)
    try:
        _examine(row, cell, budget, axes)
    except Exception as error:
        row.error = f"FAILED: {type(error).__name__}: {error}"
    return row


def _examine(row: Row, cell: Program, budget: Budget, axes: Sequence[str]) -> None:
    """Treatment, grid, final comparison."""
    with as_it_was(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice on the number of workers, at every loader
        before, sick = cell.cells()
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(longer(before), "<above>", "exec"), namespace)
        case = gpu_doctor.case(sick, namespace, name=cell.name)
        case.run(seconds=budget.trial_seconds)
        began = time.perf_counter()
        plan = case.treat(budget.max_trials, steps=budget.steps, seconds=budget.trial_seconds)
        row.seconds["treat"] = time.perf_counter() - began
        row.chosen, row.said, row.trials = dict(plan.settings), plan.speedup, len(plan.effects)
        row.waterfall = [f"{one.label} {one.speedup:.2f}x" for one in plan.waterfall]
        print(
            f"# {cell.name}: " + ("; ".join(str(effect) for effect in plan.effects) or plan.reason),
            file=sys.stderr,
            flush=True,
        )
        clock, began = Clock(case), time.perf_counter()
        grid = grid_of(case.found or Setup(), axes)
        row.grid = len(grid) - 1
        ranked = searched(clock, grid, budget)
        row.seconds["grid"] = time.perf_counter() - began
        began = time.perf_counter()
        contenders: list[Config] = []
        for one in (row.chosen, *ranked[:FINALISTS], {}):
            if one not in contenders:
                contenders.append(one)
        rates = finals(clock, contenders, budget)
        # The choice itself may be a combination that a stall of the machine put out of the race.
        best = max((one for one in contenders if one in grid), key=lambda one: rates[contenders.index(one)])
        base, own, top = (rates[contenders.index(one)] for one in ({}, row.chosen, best))
        row.best, row.best_speedup, row.speedup = best, top / base, own / base
        row.share = 1.0 if best == row.chosen else statistics.median(duel(clock, row.chosen, best, budget))
        row.seconds["finals"] = time.perf_counter() - began


def totals(rows: Sequence[Row]) -> str:
    """The bars and what was reached."""
    seen = [one for one in rows if not one.error]
    if not seen:
        return "nothing was examined"
    near = sum(one.share >= SHARE_BAR for one in seen)
    trials, grid = sum(one.trials for one in seen), sum(one.grid for one in seen)
    within = sum(one.trials <= TRIALS_BAR * one.grid for one in seen)
    median, least = statistics.median(one.share for one in seen), min(one.share for one in seen)
    return "\n".join(
        (
            f"95 % of the best   {near} of {len(seen)} cells (median {100 * median:.0f} %, least {100 * least:.0f} %)"
            f"   bar: all",
            f"trials             {trials} for grids of {grid} together ({100 * trials / grid:.0f} %)   bar: 33 %; "
            f"within a third of its own grid in {within} of {len(seen)} cells",
            f"took               {sum(sum(one.seconds.values()) for one in seen):.0f} s",
        )
    )


def reached(rows: Sequence[Row]) -> bool:
    """Whether both bars are reached."""
    seen = [one for one in rows if not one.error]
    trials, grid = sum(one.trials for one in seen), sum(one.grid for one in seen)
    return len(seen) == len(rows) > 0 and all(one.share >= SHARE_BAR for one in seen) and trials <= TRIALS_BAR * grid


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [one.name for one in curable()]
    found.add_argument("--only", nargs="*", metavar="NAME", choices=names, help=f"cells: {', '.join(names)}")
    found.add_argument("--quick", action="store_true", help="fewer steps and turns: sees that it works, no figures")
    found.add_argument("--json", type=Path, metavar="FILE", help="writes the rows")
    found.add_argument("--axes", nargs="*", metavar="KNOB", default=list(AXES), help=f"knobs; default {' '.join(AXES)}")
    return found


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    asked = parser().parse_args()
    budget = QUICK if asked.quick else Budget()
    print(
        f"{platform.processor() or platform.machine()}, torch {torch.__version__}, Python {platform.python_version()}"
    )
    print(HEAD, flush=True)
    rows: list[Row] = []
    for cell in curable():
        if asked.only and cell.name not in asked.only:
            continue
        rows.append(examine(cell, budget, asked.axes))
        print(rows[-1].line(), flush=True)
    print(totals(rows))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(one) for one in rows], indent=1))
    return 0 if reached(rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""An exhaustive grid of a case's knobs, and its timing: every combination in turns with the code as written."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from gpu_doctor.recording import Recording, Settings, SettingValue, Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.side_budget import WAVES
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tools.evaluate.timing import known

AXES: Final = ("num_workers", "prefetch_factor", "persistent_workers", "fused_optimizer", "threads")
"""`threads` only where the loop has no loader: beside workers it would double the time."""
PREFETCH: Final = (2, 16)
"""Of what is offered for prefetch_factor: torch's default, and far ahead."""
NEAR: Final = (0.75,)
"""After each pass over the grid but the last only what comes so near to the best goes on."""
FEWEST: Final = 8
"""A run that measured fewer steps than this has more time the next time: it is no figure yet."""
BLOCK: Final = 8
"""Combinations between two runs of the code as written."""
STOCKS: Final = 2
"""A run of the search is so many times as long as the batches that its workers may fetch ahead: these are fetched
while the loop is held up and used up later, so that a part of a short run is as fast as the loop alone."""
WHOLE: Final = 10**9
"""Steps of a run that ends with its code."""

Config: TypeAlias = dict[str, SettingValue]
Timer: TypeAlias = "Callable[[Config, int, float], float]"
"""Samples/s under settings, in a run of so many steps and seconds."""


@dataclass(frozen=True)
class Budget:
    """Steps and seconds of one run, and how often the final comparison alternates."""

    steps: int = 40
    seconds: float = 1.0
    first_steps: int = 20
    first_seconds: float = 0.4
    """Of the first pass, which sees every combination once."""
    rounds: int = 4
    final_seconds: float = 3.0
    """The final comparison runs the whole code, if it takes no longer."""
    duels: int = 9
    """Pairs of runs at most, of the treatment's choice and the grid's best, which judge them."""
    trial_seconds: float = 10.0
    max_trials: int = 8


QUICK: Final = Budget(
    steps=24,
    seconds=0.6,
    first_steps=16,
    first_seconds=0.3,
    rounds=2,
    final_seconds=0.6,
    duels=2,
    trial_seconds=4.0,
    max_trials=4,
)


def grid_of(setup: Setup, axes: Iterable[str] = AXES) -> list[Config]:
    """Every combination of what the panel offers for these knobs, without those that say the same or are refused.

    Values as written are left out of a combination, so that `{}` is the code as written.
    """
    offered: list[list[tuple[str, SettingValue]]] = []
    written: Config = {}
    for name in axes:
        knob = knobs.KNOBS[name]
        found = knob.found(setup)
        if name == "prefetch_factor" and "num_workers" in written:
            found = found or PREFETCH[0]
        if found is None or (name == "threads" and "num_workers" in written):
            continue
        values = [one.value for one in knob.choices(setup)]
        if name == "prefetch_factor":
            values = [one for one in values if one in PREFETCH]
        written[name] = found
        offered.append([(name, value) for value in values])
    grid: list[Config] = []
    for combination in itertools.product(*offered):
        settings = {name: value for name, value in combination if value != written[name]}
        workers = int(settings.get("num_workers", written.get("num_workers", 0)))
        if not workers and {"prefetch_factor", "persistent_workers"} & {*settings}:
            continue
        try:
            knobs.allow(settings, setup)
        except Refused:
            continue
        if settings not in grid:
            grid.append(settings)
    return grid


def rate(recording: Recording) -> float:
    """Samples/s (steps/s where a batch has no size); 0 for a run that failed or measured too little.

    All steps count but the first, which holds the start of the workers: what these fetched ahead while the loop's first
    steps were held up is paid for in those steps.
    """
    if recording.outcome not in ("completed", "budget-reached"):
        return 0.0
    steps = recording.steps
    done = float(steps.count[1:].sum())
    if done < FEWEST:
        return 0.0
    samples = float(np.nansum(steps.samples[1:]))
    return (samples or done) / max(float(steps.wall_s[1:].sum()), 1e-9)


class Clock:
    """Times a case's code under settings, from the same state every time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.snapshot = Snapshot.take(case.namespace, extra=(case.made_of,))

    def __call__(self, settings: Settings, steps: int, seconds: float) -> float:
        """Samples/s of one run; one that came to too few steps is run again with four times the seconds."""
        workers = int(settings.get("num_workers", 0))
        least = max(WAVES, STOCKS * int(settings.get("prefetch_factor", PREFETCH[0]))) * workers
        steps, seconds = max(steps, least), seconds * max(least / steps, 1.0)
        found = 0.0
        for patience in (1, 4):
            try:
                with self.case.quietly():
                    recording = self.case.once(settings, "grid", steps, patience * seconds).recording
            finally:
                self.snapshot.restore()
            found = rate(recording)
            if found or recording.outcome != "budget-reached":
                break
        return found


def searched(clock: Timer, grid: Sequence[Config], budget: Budget) -> list[Config]:
    """The grid's combinations, best first: all are timed once, the nearer ones to the best again and longer."""
    ratios: dict[int, list[float]] = {number: [] for number in range(len(grid))}
    going = list(ratios)
    order = random.Random(0)
    passes = ((budget.first_steps, budget.first_seconds), *((budget.steps, budget.seconds) for _ in NEAR))
    for turn, (steps, seconds) in enumerate(passes):
        order.shuffle(going)
        before = clock({}, steps, seconds)
        for block in (going[at : at + BLOCK] for at in range(0, len(going), BLOCK)):
            rates = [(number, clock(grid[number], steps, seconds)) for number in block]
            after = clock({}, steps, seconds)
            base = statistics.fmean([one for one in (before, after) if one] or [float("nan")])
            for number, found in rates:
                ratios[number].append(found / base)
            before = after
        if turn < len(NEAR):
            best = max(statistics.median(ratios[number]) for number in going)
            going = [number for number in going if statistics.median(ratios[number]) >= NEAR[turn] * best]
    return [grid[number] for number in sorted(going, key=lambda number: -statistics.median(ratios[number]))]


def finals(clock: Timer, contenders: Sequence[Config], budget: Budget) -> list[float]:
    """Samples/s of each contender in whole runs of the code: the median of so many turns, in which all alternate."""
    rates: list[list[float]] = [[] for _ in contenders]
    for turn in range(budget.rounds):
        for at in range(len(contenders)):
            number = (at + turn) % len(contenders)
            rates[number].append(clock(contenders[number], WHOLE, budget.final_seconds))
    return [statistics.median(one) for one in rates]


def duel(clock: Timer, one: Config, other: Config, budget: Budget) -> list[float]:
    """Samples/s of `one` over those of `other`, in pairs of whole runs: until the median is known, or all of them.

    The best of several was chosen by its own figures, which are therefore too good: these are new ones.
    """
    shares: list[float] = []
    while len(shares) < budget.duels and not known(shares, min(budget.rounds, budget.duels)):
        swapped = len(shares) % 2 == 1
        first, second = (
            clock(config, WHOLE, budget.final_seconds) for config in ((other, one) if swapped else (one, other))
        )
        shares.append(second / first if swapped else first / second)
    return shares

"""A sweep: every combination of a grid of settings against the code as written, the clearly worse given up early."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_doctor.recording import SettingValue
from gpu_doctor.trials import knobs, run
from gpu_doctor.trials.executors import Executor, InKernel, tried
from gpu_doctor.trials.knobs.knob import Refused
from gpu_doctor.trials.results import Sweep
from gpu_doctor.trials.runner import Runner


def sweep(
    case: Runner,
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

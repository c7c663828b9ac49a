"""A sweep: every combination of a grid of settings against the code as written, the clearly worse given up early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_doctor.recording import SettingValue
from gpu_doctor.trials import run
from gpu_doctor.trials.executors import Executor, InKernel, tried
from gpu_doctor.trials.results import Sweep
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.searches import combinations


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

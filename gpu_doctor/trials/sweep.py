"""A sweep: every combination of a grid of settings against the code as written.

The fastest is measured once more, afresh: the best of many figures is a lucky one, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpu_doctor.recording import SettingValue
from gpu_doctor.trials import run
from gpu_doctor.trials.compare.effect import Effect
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
        steps: of one side of one round.
        seconds: of one combination's trial, at most.
        executor: where the trials run; None = in this kernel.
        max_trials: refuses a grid of more combinations.

    Returns:
        The effects, and the best settings among them, measured twice; also the newest of `case.sweeps`.

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
    budget: dict[str, Any] = {"steps": steps, "seconds": seconds, "against": {}}
    effects, again = list[Effect](), list[Effect]()
    try:
        effects = tried(executor, case, candidates, **budget)
        fastest = Sweep(tuple(effects)).fastest
        if fastest is not None and not case.stopped:
            again = tried(executor, case, [dict(fastest.settings)], **budget)
    except KeyboardInterrupt:
        case.sweeps.append(Sweep(tuple(effects or case.effects[before:]), stopped=True))
        raise
    confirmed = next((one for one in again if one.outcome != "stopped"), None)
    case.sweeps.append(Sweep(tuple(effects), stopped=case.stopped, again=confirmed))
    return case.sweeps[-1]

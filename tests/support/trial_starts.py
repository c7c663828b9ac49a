"""Every way to start trials, and what each says where none may begin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from gpu_doctor.trials.case import Case
from gpu_doctor.trials.executors import RayExecutor
from gpu_doctor.trials.flops import NotCounted
from gpu_doctor.trials.knobs.knob import Refused
from tests.support.largest_batch_parts import Card
from tests.support.recordings import on_gpu


def _reasons(effects: Any) -> str:
    assert effects and all((one.outcome, one.speedup) == ("refused", None) for one in effects)
    (said,) = {one.reason for one in effects}
    return str(said)


def _swept(case: Case) -> str:
    nowhere = RayExecutor.__new__(RayExecutor)  # Ray is not asked: nothing gets so far
    nowhere.num_gpus = 0.0
    return _reasons(case.sweep({"threads": [1, 2]}, steps=3, executor=nowhere).effects)


def _measured(case: Case) -> str:
    with pytest.raises(Refused) as refused:
        case.measured(steps=3)
    return str(refused.value)


def _counted(case: Case) -> str:
    with pytest.raises(NotCounted) as refused:
        case.flops()
    return str(refused.value)


def _treated(case: Case) -> str:
    plan = case.treat(2, steps=3)
    assert (plan.effects, dict(plan.settings), case.plans) == ((), {}, [plan])
    assert plan.reason in str(plan)
    return plan.reason


def _searched(case: Case) -> str:
    case.recordings.append(on_gpu().recording())  # a search begins with a run on a card
    found = case.largest_batch(memory=Card(1.0, 1.0))
    del case.recordings[-1]
    assert found.batch_size is None
    return found.reason


STARTS: Final[dict[str, Callable[[Case], str]]] = {
    "trial": lambda case: _reasons([case.trial({"threads": 1}, steps=3)]),
    "sweep": _swept,
    "treat": _treated,
    "measured": _measured,
    "flops": _counted,
    "largest_batch": _searched,
}
"""Name -> what starts a trial of a case that is refused, and gives the reason."""

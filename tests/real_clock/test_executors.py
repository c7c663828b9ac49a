"""Trials in the kernel take turns, and a treatment hands its trials to its executor."""

from __future__ import annotations

from typing import Any

import gpu_doctor
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import Executor, InKernel
from tests.support.small_loop import LOOP, Rows, namespace


def test_in_the_kernel_trials_take_turns() -> None:
    case = gpu_doctor.case(LOOP, namespace())
    executor: Executor = InKernel()
    found = executor.trials(case, [{"batch_size": 8}, {"batch_size": 16}], steps=5, seconds=5, against={})
    assert executor.width == 1
    assert [dict(one.settings) for one in found] == [{"batch_size": 8}, {"batch_size": 16}]
    assert case.effects == found and len(case.trials) == 2


def test_treat_hands_its_trials_to_the_executor() -> None:
    space = namespace(Rows(4000, sleep_s=2e-3), batch=8)
    handed: list[Any] = []

    class Counting(InKernel):
        def trials(self, case: Any, candidates: Any, **given: Any) -> list[Effect]:
            handed.extend(candidates)
            return super().trials(case, candidates, **given)

    plan = gpu_doctor.case(LOOP, space).treat(max_trials=1, steps=10, seconds=10, executor=Counting())
    assert handed == [dict(effect.settings) for effect in plan.effects] != []

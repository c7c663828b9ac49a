"""Trials, a sweep and a treatment on a Ray cluster of our own find what is faster there."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.trials import executors
from tests.support.ray_parts import BUDGET, CELL, namespace, same, state
from tests.support.ray_parts import cluster as cluster


@pytest.mark.alone
def test_a_trial_on_the_cluster_finds_the_cure_and_leaves_the_kernel_alone(cluster: executors.RayExecutor) -> None:
    assert cluster.width == 2
    space = namespace()
    case = gpu_doctor.case(CELL, space)
    case.run(steps=6)
    before, names, seen = state(space), dict(space), list(space["seen"])
    (effect,) = cluster.trials(case, [{"num_workers": 2}], against={}, **BUDGET)
    assert (effect.outcome, effect.verdict) == ("budget-reached", "faster"), effect
    assert effect.speedup is not None and effect.low is not None and 1.0 < effect.low <= effect.speedup
    assert effect.predicted_speedup is not None and effect.unit == "samples/s" and effect.steps > 20
    assert effect.loss_drift == pytest.approx(0.0, abs=1e-6)  # both sides began with the same random numbers
    assert case.effects == [effect] and len(case.trials) == 1
    base, candidate = case.trials[0]
    assert (dict(base.settings), dict(candidate.settings)) == ({}, {"num_workers": 2})
    assert case.diagnosis is not None and case.diagnosis.bottleneck == "input"
    assert same(before, state(space)) and space["seen"] == seen
    assert {**names} == space

    # The same state as a trial in the kernel: the losses of the baseline are the very same.
    case.trial({"num_workers": 2}, steps=8, seconds=20, pairs=1)
    here, there = case.trials[1][0].losses.value, base.losses.value
    assert len(here) >= 6 and np.array_equal(here[:6], there[:6])


FASTER = 2.0
"""The middle, as a factor, between four workers that sleep at the same time and none that does."""


@pytest.mark.alone
def test_a_sweep_on_the_cluster_gives_the_worse_up_early(cluster: executors.RayExecutor) -> None:
    space = namespace(1e-2)
    found = gpu_doctor.case(CELL, space).sweep({"num_workers": [0, 4]}, executor=cluster, **BUDGET)
    assert found.best == {"num_workers": 4} and found.speedup > FASTER
    assert found.effects[0].reason.startswith("stopped after")
    assert space["seen"] == []


@pytest.mark.alone
def test_treat_climbs_on_the_cluster(cluster: executors.RayExecutor) -> None:
    space = namespace()
    plan = gpu_doctor.case(CELL, space).treat(max_trials=4, executor=cluster, **BUDGET)
    assert plan.settings.get("num_workers", 0) >= 2 and plan.speedup > 1.0
    assert space["loader"].num_workers == 0

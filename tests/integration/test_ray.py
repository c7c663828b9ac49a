"""A sweep on a Ray of our own finds what is faster there."""

from __future__ import annotations

from typing import Final

import numpy as np
import pytest

import gpu_doctor
from tests.support.ray_parts import BUDGET, CELL, Nodes, namespace
from tests.support.ray_parts import nodes as nodes

FASTER: Final = 2.0
"""The middle, as a factor, between four workers that sleep at the same time and none that does."""


@pytest.mark.alone
def test_a_sweep_finds_what_is_faster_and_measures_it_again(nodes: Nodes) -> None:
    space = namespace(1e-2)
    case = gpu_doctor.case(CELL, space)
    found = case.sweep({"num_workers": [0, 4]}, executor=gpu_doctor.RayExecutor(num_cpus=1), **BUDGET)
    assert found.best == {"num_workers": 4} and found.speedup > FASTER
    assert found.again is not None and case.effects == [*found.effects, found.again]
    assert space["seen"] == [] and space["loader"].num_workers == 0


@pytest.mark.alone
def test_a_trial_there_begins_from_the_same_state_as_one_in_the_kernel(nodes: Nodes) -> None:
    case = gpu_doctor.case(CELL, namespace())
    case.sweep({"num_workers": [2]}, executor=gpu_doctor.RayExecutor(num_cpus=1), **BUDGET)
    case.trial({"num_workers": 2}, steps=8, seconds=20, pairs=1)
    (there, _), (here, _) = case.trials[0], case.trials[-1]
    assert len(here.losses.value) >= 6 and np.array_equal(here.losses.value[:6], there.losses.value[:6])

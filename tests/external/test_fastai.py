"""fastai's Learner.fit, with torch's optimizer inside fastai's OptimWrapper and with fastai's own, its default."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import gpu_doctor
from tests.support.checks import CellChecks, quiet, trained
from tests.support.framework_programs.fastai import fit, learner_of, program
from tests.support.programs import BATCH, EPOCHS, TRAIN, Plan


class TestFastai(CellChecks):
    """All checks, without a smaller last batch: fastai accumulates samples over the epochs' ends."""

    program = staticmethod(program)
    samples = 48

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        one = learner_of(plan)
        return "fit(learn, plan)\n", {"fit": fit, "learn": one, "plan": plan, "model": one.model}


class TestItsOwnOptimizer(CellChecks):
    """All checks, on fastai's Adam, which is none of torch's optimizers."""

    program = staticmethod(functools.partial(program, own_optimizer=True))
    samples = 48

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`fit` alone."""
        one = learner_of(plan, own_optimizer=True)
        return "fit(learn, plan)\n", {"fit": fit, "learn": one, "plan": plan, "model": one.model}


@pytest.mark.parametrize("own_optimizer", [False, True])
def test_its_own_loaders_are_counted(own_optimizer: bool) -> None:
    """fastai's DataLoader is none of torch's: its batches are heard, not its setup, and no knob can turn it."""
    plan = Plan(every=1)
    case = gpu_doctor.case(lambda: program(plan, own_optimizer=own_optimizer, own_loaders=True))
    with quiet():
        case.run()
    assert case.diagnosis is not None
    steps, vitals = trained(case.recordings[0]), case.diagnosis.vitals
    assert vitals.steps == steps.count.sum() == plan.hand.steps == EPOCHS * (TRAIN // BATCH)
    assert vitals.samples == steps.samples.sum() == plan.hand.samples == plan.hand.steps * BATCH
    assert vitals.evaluation_share is not None
    assert vitals.evaluation_share > 0 and vitals.epochs == EPOCHS
    assert case.recordings[0].setup.loaders == ()
    effect = case.trial({"num_workers": 2}, steps=20, seconds=30)
    assert effect.outcome == "refused" and effect.reason

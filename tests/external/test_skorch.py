"""skorch: a scikit-learn estimator around a module, with its own loaders, loop and validation after each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import gpu_doctor
from tests.support.checks import CellChecks, quiet, sick
from tests.support.framework_programs.skorch import estimator, program
from tests.support.programs import Items, Plan


class TestSkorch(CellChecks):
    """All checks."""

    program = staticmethod(program)

    def cell(self, plan: Plan) -> tuple[str, dict[str, Any]]:
        """`partial_fit` of an estimator that was initialized before."""
        net = estimator(plan).initialize()
        space = {"net": net, "model": net.module_, "items": Items(plan.samples, plan.hand, plan.item_s)}
        return "net.partial_fit(items, y=None)\n", space

    def test_a_trial_puts_the_estimator_back(self, tmp_path: Path) -> None:
        """Only the net has a name: its weights, optimizer and history are put back, before a fit and after."""
        code, space = self.cell(sick(str(tmp_path)))
        net = space["net"]
        del space["model"]
        case = gpu_doctor.case(code, space)
        for _ in range(2):
            before = {name: value.clone() for name, value in net.module_.state_dict().items()}
            epochs, counted, optimizer = len(net.history), net.optimizer_.hand.steps, net.optimizer_
            attributes = dict(vars(net))
            with quiet():
                assert case.trial({"num_workers": 2}, steps=20, seconds=30, pairs=1).speedup is not None
            assert all(torch.equal(value, net.module_.state_dict()[name]) for name, value in before.items())
            assert (len(net.history), net.optimizer_.hand.steps) == (epochs, counted)
            assert net.optimizer_ is optimizer
            assert all(vars(net)[name] is value for name, value in attributes.items())
            with quiet():
                net.partial_fit(space["items"], y=None)

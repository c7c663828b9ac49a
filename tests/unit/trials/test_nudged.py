"""A baseline is nudged by one rounding where the losses differ, once, and what is nudged is put back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

from gpu_doctor.capture.patching import active
from gpu_doctor.recording import Losses, Recording, Settings
from gpu_doctor.trials.compare.losses import ROUNDOFF
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.nudged import Nudge, nudged, shift
from gpu_doctor.trials.rounds import Rounds
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.recordings import Loop


@pytest.mark.parametrize(
    ("dtype", "steps", "size"),
    [
        ("float32", 1, 16 * ROUNDOFF["float32"]),  # a sum of 256 products
        ("float32", 49, 7 * 16 * ROUNDOFF["float32"]),
        ("bfloat16", 49, ROUNDOFF["bfloat16"]),
        ("tf32", 1, ROUNDOFF["tf32"]),
    ],
)
def test_weights_move_by_what_rounding_is_worth_to_them(dtype: str, steps: int, size: float) -> None:
    weights = torch.full((64, 256), 3.0, dtype=torch.float64)
    state = torch.get_rng_state()
    shift(weights, dtype, steps)
    assert (weights / 3.0 - 1.0).std().item() == pytest.approx(size, rel=0.05)
    assert torch.equal(state, torch.get_rng_state()), "the loop's own random numbers are not touched"
    whole = torch.arange(3)
    shift(whole, dtype)
    assert whole.tolist() == [0, 1, 2]


def test_trained_modules_are_nudged_once_at_their_first_call_and_others_never() -> None:
    model, teacher = nn.Linear(8, 2), nn.Linear(8, 2)
    x, before = torch.ones(1, 8), [one.detach().clone() for one in (*model.parameters(), *teacher.parameters())]
    scope = TrialScope({"optimizer": torch.optim.SGD(model.parameters(), 0.1), "model": model})
    with nudged(scope, Nudge()):
        assert torch.equal(model.weight, before[0]), "not before it is used"
        model(x).sum().backward()
        once = model.weight.detach().clone()
        model(x), teacher(x)
    assert not torch.equal(once, before[0]) and torch.allclose(once, before[0], rtol=1e-5)
    assert torch.equal(model.weight, once) and torch.equal(teacher.weight, before[2])
    assert not active(), "nothing of ours is left on"


def test_random_numbers_are_drawn_anew_only_where_that_is_asked_for() -> None:
    model, x = nn.Linear(2, 2), torch.ones(1, 2)
    scope = TrialScope({"optimizer": torch.optim.SGD(model.parameters(), 0.1), "model": model})
    state, drawn = torch.get_rng_state(), []
    for anew in (False, True):
        torch.set_rng_state(state)
        with nudged(scope, Nudge(anew=anew)):
            model(x)
            drawn.append(torch.rand(1).item())
            loader = iter(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x)))
            drawn.append(loader._base_seed)
    torch.set_rng_state(state)
    assert torch.rand(1).item() == drawn[0] and drawn[2] != drawn[0] and drawn[3] != drawn[1]


class Sides:
    """Runs of code whose losses are told beforehand."""

    def __init__(self, candidate: float, nudged_by: float) -> None:
        self.candidate, self.nudged_by = candidate, nudged_by
        self.roles: list[str] = []
        self.nudge: Nudge | None = None
        self.inside = False

    def once(self, settings: Settings, role: str, steps: int, seconds: float) -> Result:
        off = self.nudged_by if self.inside else self.candidate if role == "candidate" else 0.0
        self.roles.append("nudged" if self.inside else role)
        at = np.arange(50.0)
        made = Loop(steps=50, settings=dict(settings)).recording()
        losses = Losses(at, 32.0 * at, np.full(50, 2.0) * (1.0 + off * at / 50))
        return Result(dataclasses.replace(made, losses=losses, outcome="budget-reached"))

    @contextmanager
    def nudged(self, nudge: Nudge) -> Iterator[None]:
        self.nudge, self.inside = nudge, True
        yield
        self.inside = False


@pytest.mark.parametrize(("candidate", "runs"), [(0.0, 0), (1e-4, 1)])
def test_the_baseline_is_nudged_once_and_only_where_the_losses_differ(candidate: float, runs: int) -> None:
    sides, own = Sides(candidate, 5e-5), list[Recording]()
    rounds = Rounds(sides.once, Snapshot.take({}), lambda said: None, lambda: False, nudged=sides.nudged, alone=own)
    for _ in range(2):
        rounds.pair("", {}, {"num_workers": 2}, 50, 60.0)
    assert sides.roles == ["baseline", "candidate", *["nudged"] * runs, "candidate", "baseline"]
    assert len(own) == runs and (not runs or sides.nudge == Nudge("float32", True, 50))

"""How fast a loop is told to be whose host runs ahead of the card, against CUDA events around all of it.

GPU: not yet run on one. The same is proved on a simulated device in tests/unit/trials/test_stretch.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpu_doctor

CELL = """
import torch
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
for i in range(steps):
    if i == 10:
        begin.record()
    optimizer.zero_grad(set_to_none=True)
    model(batch).square().mean().backward()
    optimizer.step()
    if waits:
        torch.cuda.current_stream().synchronize()
end.record()
"""
STEPS = 100


def space(waits: bool, size: int = 8192) -> dict[str, Any]:
    """Layers so large that the host launches them far faster than the card computes."""
    model = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(4))).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.randn(4096, size, device="cuda")
    return {"model": model, "optimizer": optimizer, "batch": batch, "steps": STEPS, "waits": waits}


@pytest.mark.parametrize("waits", [False, True])
def test_a_run_is_as_fast_as_the_card(waits: bool) -> None:
    found = space(waits)
    case = gpu_doctor.case(CELL, found)
    vitals = gpu_doctor.measure(case.run())
    torch.cuda.synchronize()
    true_s = found["begin"].elapsed_time(found["end"]) * 1e-3 / (STEPS - 10)
    assert vitals.step_wall_s == pytest.approx(true_s, rel=0.05)


def test_a_trial_that_changes_nothing_on_the_card_is_no_difference() -> None:
    case = gpu_doctor.case(CELL, space(False))
    case.run()
    effect = case.trial({"threads": 1}, steps=50, seconds=20)
    assert effect.verdict not in ("faster", "slower") and effect.speedup == pytest.approx(1.0, abs=0.05)
    assert all(one.timed is not None for sides in case.trials for one in sides)


def test_a_loop_that_waits_each_step_is_hardly_slower_than_one_that_runs_ahead() -> None:
    told = {}
    for waits in (False, True):
        case = gpu_doctor.case(CELL, space(waits))
        case.run()
        case.trial({"threads": 1}, steps=50, seconds=20)
        told[waits] = [base for base, _ in case.trials]
    rates = {waits: gpu_doctor.measure(one[-1]).steps_per_s for waits, one in told.items()}
    assert rates[True] is not None and rates[False] == pytest.approx(rates[True], rel=0.05)

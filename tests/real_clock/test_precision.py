"""A cell that sets the precision by torch's newer name can be tried with another one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gpu_doctor
from gpu_doctor.trials.matmul_precision import newer_places, precisions, put_back
from tests.support.precision_parts import newer


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = precisions()
    for name, place in newer_places():
        if name.endswith("matmul"):
            place.fp32_precision = "none"  # as torch begins: earlier tests may have set an older name
    yield
    put_back(before)
    assert precisions() == before


@newer
def test_a_trial_of_a_cell_that_sets_the_newer_name_is_a_trial() -> None:
    cell = """
import torch
torch.backends.cuda.matmul.fp32_precision = "tf32"
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
    case = gpu_doctor.case(cell, {"__name__": "__main__"})
    case.run()
    effect = case.trial({"threads": 1}, steps=10)
    assert effect.speedup is not None and effect.not_restored == ()

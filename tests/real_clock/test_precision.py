"""A cell that sets the precision by torch's newer name can be tried with another one."""

from __future__ import annotations

import gpu_doctor
from tests.support.precision import as_it_was as as_it_was
from tests.support.precision import newer


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
    effect = case.trial({"threads": 1}, steps=10, pairs=1)
    assert effect.speedup is not None and effect.not_restored == ()

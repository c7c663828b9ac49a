"""Real loops that keep their graphs are found with the line that does so, and their healthy neighbours are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gpu_doctor.trials.run as trial
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import Recording
from tests.support.found import asked

pytestmark = pytest.mark.slow

RULE = "memory-growth"

SETUP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
class Cached(Dataset):
    def __init__(self, n): self.n, self.cache = n, {}
    def __len__(self): return self.n
    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = torch.randn(256).repeat(8)
        return self.cache[i][:256], i % 10
data = TensorDataset(torch.randn(1024, 256), torch.randint(0, 10, (1024,)))
"""


LOOP = """
losses, total = [], 0.0
for epoch in range(100_000):
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()
"""


def trained(loader: str, body: str, seconds: float = 6.0) -> Recording:
    """A real loop, for some seconds."""
    namespace: dict[str, Any] = {}
    exec(SETUP + f"loader = {loader}", namespace)
    source = LOOP + body
    code = compile(source, "<cell>", "exec")
    recorder = Recorder(source=source, max_s=seconds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        recording = trial.run(lambda: exec(code, namespace), recorder, namespace).recording
    finally:
        torch.set_num_threads(threads)
    assert recording.outcome == "budget-reached", recording.reason
    return recording


BATCHES = "DataLoader(data, batch_size=64, shuffle=True)"
GROWING_S = 40.0
"""What torch imports and keeps in the first steps hides the rise at first: on two cores for 20 s, no longer at 32 s."""


@pytest.mark.alone
def test_a_loop_that_keeps_its_graphs() -> None:
    found = asked(RULE, trained(BATCHES, "        losses.append(loss)\n", GROWING_S))
    assert found is not None and "line 10 keeps `loss`" in found.headline and found.risk


@pytest.mark.parametrize(
    ("loader", "body"),
    [
        (BATCHES, "        losses.append(loss.item())\n"),  # the cure: a growing list of numbers
        ("DataLoader(Cached(60_000), batch_size=64, shuffle=True)", "        losses.append(loss.item())\n"),
        (BATCHES, "        losses = (losses + [loss.detach()])[-100:]\n"),  # bounded
    ],
    ids=["numbers", "cached-dataset", "bounded"],
)
def test_healthy_neighbours(loader: str, body: str) -> None:
    assert asked(RULE, trained(loader, body)) is None


def test_warming_up_is_no_growth() -> None:
    assert asked(RULE, trained(BATCHES, "        pass\n", seconds=4.0)) is None

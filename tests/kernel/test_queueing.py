"""A trial that the panel asks for, in a real kernel: cells wait for its end and find all put back; Stop is heard."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.real_kernel import Kernel
from tests.support.real_kernel import kernel as kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SETUP = """
import hashlib, random, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
%load_ext gpu_doctor

class Rows(Dataset):
    def __len__(self): return 2000
    def __getitem__(self, index):
        time.sleep(2e-3)
        return torch.randn(16), index % 10

torch.set_num_threads(1)
loader = DataLoader(Rows(), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3))
model = nn.Linear(16, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
seen = []

def state():
    tensors = [*model.state_dict().values(), *(t for one in optimizer.state.values() for t in one.values())]
    kept = [tensor.tolist() for tensor in tensors]
    rngs = [loader.generator.get_state().tolist(), torch.get_rng_state().tolist(), random.getstate()]
    return hashlib.sha256(repr((kept, rngs, seen, loader.num_workers)).encode()).hexdigest()
"""
TRAINING = """%%gpudoctor --steps 30
for inputs, targets in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    seen.append(loss.item())
"""
LOOK = "print(state(), len(__import__('gpu_doctor').last_case().effects), len(seen))"


@pytest.mark.parametrize(
    "asked",
    [
        {"ask": "trial", "settings": {"num_workers": 1}, "steps": 30},
        {"ask": "sweep", "grid": {"num_workers": [1, 2]}, "steps": 15},
    ],
    ids=["trial", "sweep"],
)
def test_a_cell_run_meanwhile_waits_and_sees_the_state_put_back(kernel: Kernel, asked: dict[str, Any]) -> None:
    kernel.run(SETUP)
    kernel.run(TRAINING)
    before = kernel.run(LOOK).split()
    assert before[1:] == ["0", "30"]
    running = {"trial": "trial", "sweep": "sweeping"}[asked["ask"]]
    kernel.click(**asked)
    kernel.listen(lambda: running in kernel.statuses, "It did not begin")
    cells = [kernel.client.execute(code) for code in (LOOK, "seen.append(0.5)", LOOK)]
    kernel.listen(lambda: cells[-1] in kernel.done, "The cells behind it did not run")
    digest, effects, steps = kernel.printed[cells[0]].split()
    assert (digest, steps) == (before[0], before[2]), "the first cell behind it finds everything as it was"
    # One a setting, and where one came out faster it is measured again.
    whole = {"trial": ("1",), "sweep": ("2", "3")}[asked["ask"]]
    assert effects in whole, "the cell ran when all was done, not in between"
    assert kernel.printed[cells[2]].split()[2] == "31", "and the cells keep their order"


@pytest.mark.parametrize(
    "asked",
    [
        {"ask": "trial", "settings": {"num_workers": 1}, "steps": 100_000},
        {"ask": "sweep", "grid": {"num_workers": [1, 2]}, "steps": 100_000},
        {"ask": "treat", "steps": 100_000},
    ],
    ids=["trial", "sweep", "treat"],
)
def test_stop_is_heard_while_it_runs(kernel: Kernel, asked: dict[str, Any]) -> None:
    """What it writes and displays is taken in meanwhile, which must not keep the kernel from hearing the page."""
    kernel.run(SETUP)
    endless = TRAINING.replace("for inputs", "import itertools\nfor inputs").replace("in loader", "in forever()")
    kernel.run("def forever():\n    while True:\n        yield from loader")
    kernel.run(endless)
    before = kernel.run(LOOK).split()[0]
    subshell = kernel.subshell()
    said = len(kernel.statuses)
    kernel.click(subshell, **asked)
    begun = {"trial": "trial", "sweep": "sweeping", "treat": "treating"}[asked["ask"]]
    kernel.listen(lambda: begun in kernel.statuses[said:], "It did not begin")
    kernel.click(subshell, ask="stop")
    kernel.listen(lambda: kernel.statuses[-1] == "idle", "Stop was not heard", 45.0)
    if asked["ask"] == "trial":
        assert "stopped" in kernel.run("print(__import__('gpu_doctor').last_case().effects[-1].outcome)")
    assert kernel.run(LOOK).split()[0] == before

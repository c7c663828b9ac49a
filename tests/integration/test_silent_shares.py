"""Whatever takes a tenth of the time and is no computing has its line: programs whose truth is timed by hand first.

The truth is timed without gpu_doctor: the slow line stands between two readings of a clock. The machine may be busy, so
shares are compared roughly, and the lines exactly.
"""

from __future__ import annotations

import linecache
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.diagnosis import Diagnosis

pytestmark = pytest.mark.alone
ROUGHLY = 0.35
"""Some 20 looks fall into a short run: of a half, two standard errors are 22 points, and two runs differ as well."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of torch that wait for each other on a busy machine take what the programs are about."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Timed:
    """Adds up what lies between `with timed:` and its end."""

    def __init__(self) -> None:
        self.seconds, self._begin = 0.0, 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._begin


def ran(before: str, names: dict[str, Any]) -> None:
    """Runs an earlier cell, whose lines are known by its text."""
    text = textwrap.dedent(before)
    linecache.cache["<before>"] = (len(text), None, text.splitlines(keepends=True), "<before>")
    exec(compile(text, "<before>", "exec"), names)


def truth(before: str, cell: str) -> float:
    """Share of the cell that runs inside of `with timed:`, without gpu_doctor."""
    timed = Timed()
    names: dict[str, Any] = {"timed": timed, "torch": torch}
    ran(before, names)
    code = compile(textwrap.dedent(cell), "<truth>", "exec")
    begin = time.perf_counter()
    exec(code, names)
    return timed.seconds / (time.perf_counter() - begin)


def watched(before: str, cell: str) -> Diagnosis:
    """The diagnosis of the same cell; there the clock by hand does nothing."""
    torch.manual_seed(1)
    names: dict[str, Any] = {"timed": torch.enable_grad(), "torch": torch}
    ran(before, names)
    return gpu_doctor.diagnose(gpu_doctor.case(textwrap.dedent(cell), names).run())


BEST_WEIGHTS = (
    """
    import copy
    words = torch.nn.Embedding(60_000, 128)
    words.weight.requires_grad_(False)
    head = torch.nn.Linear(128, 2)
    model = torch.nn.ModuleDict({"words": words, "head": head})
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    texts = torch.randint(60_000, (512, 20))
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(texts, texts[:, 0] % 2), batch_size=64)
    """,
    """
    for epoch in range(40):
        for ids, labels in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model["head"](model["words"](ids).mean(1)), labels)
            loss.backward()
            optimizer.step()
        with timed:
            kept = copy.deepcopy(model)
    """,
    "copy.deepcopy(model)",
)
"""Between epochs."""
SLICES = (
    """
    pictures = torch.rand(240, 3, 96, 96, dtype=torch.float64)
    kinds = torch.arange(240) % 3
    net = torch.nn.Sequential(torch.nn.AvgPool2d(32), torch.nn.Flatten(), torch.nn.Linear(27, 3))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    """,
    """
    for epoch in range(120):
        for begin in range(0, 240, 48):
            with timed:
                batch = pictures[begin : begin + 48].to(dtype=torch.float32)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(batch), kinds[begin : begin + 48])
            loss.backward()
            optimizer.step()
    """,
    "pictures[begin",
)
"""In the loop, and computed by torch."""
ACTING = (
    """
    from torch.distributions import Categorical
    policy = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    """,
    """
    for episode in range(80):
        state, chosen = torch.zeros(1, 4), []
        for _ in range(60):
            scores = policy(state)
            with timed:
                odds = Categorical(logits=scores)
                action = odds.sample()
                chosen.append(odds.log_prob(action))
                state = torch.tensor([[1.0, 0.5, abs(action.item() - 0.5), 1.0]])
        loss = -torch.cat(chosen).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """,
    "odds",
)
"""Where torch calls and Python alternate."""
GENERATOR = (
    """
    net = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    def batches():
        for _ in range(150):
            with timed:
                rows = [[(i * j) % 7 / 7 for j in range(256)] for i in range(64)]
                x = torch.tensor(rows)
            yield x
    """,
    """
    for x in batches():
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    """,
    "rows",
)
AWAITED = (
    """
    import asyncio
    net = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    async def batches():
        for _ in range(100):
            with timed:
                await asyncio.sleep(0.004)
            yield torch.rand(64, 256)
    async def train():
        async for x in batches():
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    """,
    "asyncio.run(train())",
    "async for x in batches()",
)
IN_A_FORWARD = (
    """
    class Gate(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.score, self.used = torch.nn.Linear(64, 6), {}
        def forward(self, x):
            weights = self.score(x).softmax(-1)
            with timed:
                for row in weights.detach().tolist():
                    chosen = max(range(len(row)), key=row.__getitem__)
                    self.used[chosen] = self.used.get(chosen, 0) + 1
                    self.used["entropy"] = self.used.get("entropy", 0.0) - sum(p * (p > 0) for p in row)
            return weights
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Sequential(Gate()), torch.nn.Linear(6, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.rand(512, 64), torch.randint(10, (512,))
    """,
    """
    for _ in range(300):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    """,
    "self.used",
)
"""Two modules deep."""


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        (BEST_WEIGHTS, "slow-python"),
        (SLICES, "slow-python"),
        (ACTING, "slow-python"),
        (GENERATOR, "slow-generator"),
        (AWAITED, "slow-python"),
        (IN_A_FORWARD, "python-in-forward"),
    ],
    ids=["between epochs", "in the loop", "acting", "in a generator", "awaited", "in a forward"],
)
def test_what_takes_the_time_is_named_with_its_line(program: tuple[str, str, str], cause: str) -> None:
    before, cell, line = program
    share = truth(before, cell)
    assert share > 0.15, "the program shows no such share here"
    diagnosis = watched(before, cell)
    found = next((one for one in diagnosis.findings if one.rule == cause), None)
    assert found is not None and found.cost_share is not None, diagnosis.verdict
    assert found.kind == "lost" and abs(found.cost_share - share) < ROUGHLY, f"{share:.0%} by hand: {found.headline}"
    assert any(line in one for one in (found.headline, *found.evidence)), found.evidence
    if share > 0.5:
        assert diagnosis.bottleneck == "host"


def test_what_lies_around_the_loop_is_told_in_a_note() -> None:
    before = """
    import time
    net = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    """
    cell = """
    time.sleep(0.6)
    for _ in range(100):
        net(torch.rand(512, 64)).square().mean().backward()
        optimizer.step()
    written = [time.sleep(0.3) for _ in range(2)]
    """
    diagnosis = watched(before, cell)
    assert any("before the first step" in one and "time.sleep(0.6)" in one for one in diagnosis.notes)
    assert any("after the last step" in one and "time.sleep(0.3)" in one for one in diagnosis.notes)
    assert not [one for one in diagnosis.findings if "sleep" in one.headline], "it is no part of a step"


BY_HAND = """
from torch.nn import functional
weights, shift = 5 * torch.randn(4, 1), 5 * torch.randn(1)
layer = torch.nn.Linear(4, 1)
def powers(x):
    return torch.cat([x.unsqueeze(1) ** i for i in range(1, 5)], 1)
def batch(size=32):
    x = powers(torch.randn(size))
    return x, x @ weights + shift
"""
UPDATED_BY_HAND = """
for step in range(4000):
    x, y = batch()
    layer.zero_grad()
    loss = functional.smooth_l1_loss(layer(x), y)
    loss.backward()
    for parameter in layer.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
"""


def test_an_update_by_hand_is_healthy() -> None:
    diagnosis = watched(BY_HAND, UPDATED_BY_HAND)
    assert not [one for one in diagnosis.findings if one.rule in ("slow-python", "python-in-forward")]


SWEEP = """
found = {}
for width in (256, 384, 512):
    for rate in (1e-4, 1e-3):
        model = torch.nn.Sequential(torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for chosen in order.split(256):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(rows[chosen]), wanted[chosen])
            loss.backward()
            optimizer.step()
        found[width, rate] = loss.item()
"""


def test_our_own_search_for_models_is_in_nobodys_account() -> None:
    before = "rows, wanted, order = torch.rand(3072, 256), torch.rand(3072, 1), torch.randperm(3072)"
    diagnosis = watched(before, SWEEP)
    named = [line for one in diagnosis.findings if one.rule == "slow-python" for line in one.evidence]
    assert not [one for one in named if "Adam(" in one or "model(" in one], named


BAGS = """
class Bags(torch.utils.data.Dataset):
    def __len__(self):
        return 320
    def __getitem__(self, i):
        return torch.rand(12 + i % 5, 64), i % 2
encoder = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(Bags(), batch_size=16, collate_fn=lambda bags: list(zip(*bags)))
"""
BAG_BY_BAG = """
for _ in range(3):
    for bags, labels in loader:
        optimizer.zero_grad()
        scores = torch.stack([encoder(bag).mean(0) for bag in bags])
        torch.nn.functional.cross_entropy(scores, torch.tensor(labels)).backward()
        optimizer.step()
"""


def test_a_model_that_is_called_bag_by_bag_is_one_by_one() -> None:
    diagnosis = watched(BAGS, BAG_BY_BAG)
    found = next(one for one in diagnosis.findings if one.rule == "per-sample-forward")
    assert found.kind == "at-most" and "torch.cat(batch)" in found.prescriptions[0].code


PIECES = """
for x, y in data:
    optimizer.zero_grad()
    z = net(x)
    loss = LOSS
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "told"),
    [("sum((z[i] - z[i - 1]).square().sum() / (1 + y[i]) for i in range(64))", True), ("criterion(z, y)", False)],
)
def test_a_loss_that_is_made_piece_by_piece_is_counted(loss: str, told: bool) -> None:
    before = """
    net, criterion = torch.nn.Linear(32, 8), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = [(torch.rand(64, 32), torch.randint(8, (64,))) for _ in range(60)]
    """
    diagnosis = watched(before, PIECES.replace("LOSS", loss))
    assert ("loss-in-a-loop" in [one.rule for one in diagnosis.findings]) is told, (
        diagnosis.vitals.setup.loss_operations
    )

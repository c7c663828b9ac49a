"""What the tests of ray share."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psutil
import pytest
import ray
import torch
from ray.cluster_utils import Cluster

pytest.importorskip("ray.tune", exc_type=ImportError)

EARLIER = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(DELAY)
        return torch.full((8,), float(index % 7)), index % 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 2)
    def forward(self, x):
        return self.linear(x)

def loss_of(x, y):
    return nn.functional.cross_entropy(model(x), y)

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Rows(), batch_size=8, shuffle=True)
seen = []
"""


CELL = """
for x, y in loader:
    optimizer.zero_grad()
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    seen.append(len(x))
"""


BUDGET: dict[str, Any] = {"steps": 20, "seconds": 30}


@dataclass
class Nodes:
    """A Ray of our own whose nodes are processes of this machine."""

    cluster: Cluster

    def add(self, **resources: float) -> Any:
        """Another node of one CPU, with further resources."""
        return self.cluster.add_node(num_cpus=1, num_gpus=0, resources=resources, **QUIET)

    def lose(self, node: Any) -> None:
        """The node's processes end without a word."""
        self.cluster.remove_node(node, allow_graceful=False)


LATE: Final = "The current node timed out during startup"
"""What Ray's `node.py` raises where its processes need longer to start than is written there (ray#65983)."""


def begun() -> Nodes:
    """A cluster of two nodes; tried once more where Ray's processes were late; any other error is one."""
    before = children()
    try:
        return two_nodes()
    except Exception as error:  # Ray raises a bare Exception
        if LATE not in str(error):
            raise
        for one in children() - before:  # Ray leaves those of a node that did not start
            one.kill()
        return two_nodes()


def children() -> set[psutil.Process]:
    """The processes below this one."""
    return set(psutil.Process().children(recursive=True))


def two_nodes() -> Nodes:
    """A cluster of two nodes."""
    found = Nodes(Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, **QUIET}))
    found.add()
    return found


QUIET: Final[dict[str, Any]] = {"include_dashboard": False, "object_store_memory": 100 * 2**20}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Two nodes of one CPU each, and this process connected; no process of them is left afterwards."""
    before = children()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray listens on this machine only, as it does on macOS and Windows by itself.
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        found = begun()
        ray.init(address=found.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        started = children() - before
        try:
            yield found
        finally:
            started |= children() - before
            ray.shutdown()
            found.cluster.shutdown()  # type: ignore[no-untyped-call]
            _, left = psutil.wait_procs(list(started), timeout=60)
            assert not left, left


def namespace(delay_s: float = 2e-3) -> dict[str, Any]:
    """A notebook's namespace: its classes and functions are in no module."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(EARLIER, space)
    space["DELAY"] = delay_s
    return space


def state(space: dict[str, Any]) -> list[Any]:
    moments = [value.clone() for one in space["optimizer"].state.values() for value in one.values()]
    generator: Any = np.random.get_state()
    weights = [one.clone() for one in space["model"].parameters()]
    return [
        *weights,
        *moments,
        torch.get_rng_state(),
        torch.as_tensor(generator[1].astype(np.int64)),
        torch.tensor(random.getstate()[1]),
    ]


def same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def once_running(case: Any, act: Callable[[], object], after_s: float = 0.0) -> threading.Thread:
    """Does something once a combination of the case's sweep has run for so long, on a thread of its own."""

    def waiting() -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            so_far = case.sweeping
            if so_far is not None and any(one.outcome == "running" for one in so_far.effects):
                time.sleep(after_s)
                act()
                return
            time.sleep(0.05)

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    return thread

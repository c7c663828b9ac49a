"""What it costs to hand a batch from a worker to the loop, over what a forecast takes it to cost.

Run with `.venv/bin/python -m benchmarks.handing`; takes a minute. The workers make their batches at once, so that
they are ready before the loop asks: what `next()` takes then is the handing over. Beside it stand its wall-clock, its
CPU time and the worker's over what `capture/taps/handing_cost.py` times right before, a batch and each of its tensors
being a message: the source of `TIMED` in `forecast/worker_costs.py`. One torch thread.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from gpu_doctor.capture.taps import handing_cost

STEPS = 150
WARM_UP = 20
OWN_S = 3e-3
"""What the loop does between two batches."""


class Ready(Dataset[list[torch.Tensor]]):
    """Batches that cost nothing but their memory."""

    def __init__(self, tensors: int, numbers: int) -> None:
        """So many tensors a batch, of so many float32."""
        self.tensors, self.numbers = tensors, numbers

    def __len__(self) -> int:
        """Batches."""
        return STEPS + WARM_UP

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        """One batch."""
        return [torch.zeros(self.numbers) for _ in range(self.tensors)]


def work(kind: str) -> None:
    """What the loop does meanwhile, in Python, in torch, or not at all."""
    until = time.perf_counter() + OWN_S
    if kind == "sleep":
        time.sleep(OWN_S)
    square = torch.ones(300, 300)
    while time.perf_counter() < until:
        if kind == "products":
            square @ square


def measured(tensors: int, numbers: int, kind: str) -> tuple[float, float, float, float]:
    """Median milliseconds of `next()`, of its CPU in this thread, of reading the batch, and of the worker's CPU."""
    loader: Any = DataLoader(Ready(tensors, numbers), batch_size=None, num_workers=1)
    batches = iter(loader)
    for _ in range(WARM_UP):
        next(batches)
        work(kind)
    (worker,) = psutil.Process().children()
    begin = sum(worker.cpu_times()[:2])
    walls, cpus, reads = [], [], []
    for _ in range(STEPS - 5):
        wall, cpu = time.perf_counter(), time.thread_time()
        batch = next(batches)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.thread_time() - cpu)
        read = time.perf_counter()
        for one in batch:
            one.sum()
        reads.append(time.perf_counter() - read)
        work(kind)
    spent = (sum(worker.cpu_times()[:2]) - begin) / len(walls)
    return tuple(1e3 * one for one in (*(statistics.median(part) for part in (walls, cpus, reads)), spent))  # type: ignore[return-value]


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(1)
    print("milliseconds a batch; the loop meanwhile works in Python, in matrix products, or sleeps")
    print(f"{'':49}{'':12}over what was timed")
    print(
        f"{'tensors':>7} {'kB':>7} {'loop':9} {'next()':>7} {'its CPU':>8} {'reading':>8} {'worker CPU':>11}"
        f"{'next()':>9} {'its CPU':>8} {'worker CPU':>11}"
    )
    for tensors, numbers in ((1, 1000), (2, 1000), (4, 1000), (8, 1000), (2, 100_000), (2, 1_000_000)):
        for kind in ("python", "products", "sleep"):
            handing_cost.handing.cache_clear()
            timed = handing_cost.handing()
            wall, cpu, read, worker = measured(tensors, numbers, kind)
            nbytes = tensors * numbers * 4
            expected = 1e3 * ((tensors + 1) * timed["message_s"] + nbytes * timed["new_byte_s"])
            print(
                f"{tensors:7} {nbytes / 1e3:7.0f} {kind:9} {wall:7.2f} {cpu:8.2f} {read:8.2f} {worker:11.2f}"
                f"{wall / expected:9.2f} {cpu / expected:8.2f} {worker / expected:11.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Times loops from a synchronised device to a synchronised device; no tap of ours is on meanwhile."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

LEADING: Final = 0.35
"""The first part of the steps is left out: workers start, kernels are chosen, the clocks rise."""
STOCK: Final = 0.15
"""So is the last: batches lie ready there which nobody fetches any more."""


def synchronize(device: str) -> None:
    """Waits until all that was launched is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def with_fork() -> None:
    """Has workers forked, as Python did before 3.14: what cells define cannot be sent to them otherwise."""
    with contextlib.suppress(RuntimeError, ValueError):
        multiprocessing.set_start_method("fork")


@contextlib.contextmanager
def as_it_was(device: str) -> Iterator[dict[str, Any]]:
    """Makes a namespace for cells; then puts back what they may turn in torch, and frees what they left."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark, names = torch.backends.cudnn.benchmark, {"__name__": "__main__"}
    torch.manual_seed(0)
    try:
        yield names
    finally:
        names.clear()
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
        gc.collect()
        if device.startswith("cuda"):
            torch.cuda.empty_cache()


def step_s(before: str, cell: str, device: str, steps: int) -> float:
    """Times a bare cell that makes so many steps, in seconds a step.

    Raises:
        RuntimeError: if the cell made another number of steps.
    """
    first, last = max(round(LEADING * steps), 2), steps - max(round(STOCK * steps), 1)
    seen, marks = [0], dict[int, float]()

    def stepped(*_: object) -> None:
        seen[0] += 1
        if seen[0] in (first, last):
            synchronize(device)
            marks[seen[0]] = time.perf_counter()

    with as_it_was(device) as names:
        exec(compile(before, "<above>", "exec"), names)
        hook = register_optimizer_step_post_hook(stepped)
        try:
            exec(compile(cell, "<cell>", "exec"), names)
            synchronize(device)
        finally:
            hook.remove()
    if seen[0] != steps:
        raise RuntimeError(f"the cell made {seen[0]} steps, not {steps}")
    return (marks[last] - marks[first]) / (last - first)


def in_turns(sides: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """Asks each side in each turn; their order changes from turn to turn (A B B A)."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in sides if turn % 2 == 0 else reversed(list(sides)):
            found[name].append(sides[name]())
    return found


def gain(before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """Takes the median over turns of how many times as fast the second is."""
    return statistics.median(one / other for one, other in zip(before_s, after_s, strict=True))

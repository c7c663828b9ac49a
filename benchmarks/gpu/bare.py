"""Times cells without gpu_doctor in the process: `python -m benchmarks.gpu.bare TEXTS.json DEVICE`, a line each.

Of each patient the sick and the cured cell run in turns (A B B A), each in a namespace of its own. A stretch goes from
a step's end to a later one's, the device synchronised at both: torch's optimizer hook says when a step has ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.gpu.timing import emptied, gain, in_turns, synchronize

LEADING: Final = 0.35
"""The first part of the steps is left out: workers start, kernels are chosen, the clocks rise."""
STOCK: Final = 0.15
"""So is the last: batches lie ready there which nobody fetches any more."""


def step_s(before: str, cell: str, device: str, steps: int) -> float:
    """Seconds a step of a bare cell.

    Raises:
        RuntimeError: if the cell made another number of steps than it was to make.
    """
    first, last = max(round(LEADING * steps), 3), steps - max(round(STOCK * steps), 1)
    seen: list[int] = [0]
    marks: dict[int, float] = {}

    def stepped(*_: object) -> None:
        seen[0] += 1
        if seen[0] in (first, last):
            synchronize(device)
            marks[seen[0]] = time.perf_counter()

    namespace: dict[str, Any] = {"__name__": "__main__"}
    with as_it_was(device):
        exec(compile(before, "<above>", "exec"), namespace)
        handle = register_optimizer_step_post_hook(stepped)
        try:
            exec(compile(cell, "<cell>", "exec"), namespace)
            synchronize(device)
        finally:
            handle.remove()
            namespace.clear()
    if seen[0] != steps:
        raise RuntimeError(f"the cell made {seen[0]} steps, not {steps}")
    return (marks[last] - marks[first]) / (last - first)


@contextlib.contextmanager
def as_it_was(device: str) -> Iterator[None]:
    """Puts back what a cell may turn in torch, and frees what it left."""
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    benchmark = torch.backends.cudnn.benchmark
    torch.manual_seed(0)
    gc.collect()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark
        emptied(device)


def examined(one: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The truth about one patient: seconds a step, and the gain in samples a second."""
    sides = {
        "sick": lambda: step_s(one["before"], one["sick"], device, one["steps"]),
        "cured": lambda: step_s(one["better"], one["cured"], device, one["cured_steps"]),
    }
    found = in_turns(sides, one["turns"])
    gains = [s / c for s, c in zip(found["sick"], found["cured"], strict=True)]
    return {
        "sick_ms": 1e3 * statistics.median(found["sick"]),
        "cured_ms": 1e3 * statistics.median(found["cured"]),
        "real": one["samples"] * gain(found["sick"], found["cured"]),
        "real_all": [one["samples"] * each for each in gains],
    }


def with_fork() -> None:
    """Workers are forked, as Python did before 3.14: what cells define cannot be sent to them otherwise."""
    with contextlib.suppress(RuntimeError, ValueError):
        multiprocessing.set_start_method("fork")


def main(texts: Path, device: str) -> int:
    """Prints what it finds, a line a patient; ends with the first that fails, since a device may be lost with it."""
    warnings.simplefilter("ignore")  # torch's advice on the number of workers, at every loader
    with_fork()
    for one in json.loads(texts.read_text(encoding="utf-8")):
        try:
            found = examined(one, device)
        except Exception as error:
            print(json.dumps({"key": one["key"], "error": f"{type(error).__name__}: {error}"[:500]}), flush=True)
            return 1
        if "gpu_doctor" in sys.modules:
            raise RuntimeError("gpu_doctor is in the process that times the bare cells")
        print(json.dumps({"key": one["key"], **found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))

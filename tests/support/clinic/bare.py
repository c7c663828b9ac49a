"""The truth about a cell: the bare one and the bare cured one by the clock, without our tool.

Each bare cell runs in a namespace of its own; torch's optimizer hook notes when a step ended; seconds a step are taken
from there, without the first fifth of the steps (start of workers, first launches) and without those at the end for
which batches lay ready, which is what samples per second after warm-up means. Sick and cured alternate, the gain is the
median of the pairs, of which there are as many as it takes to know it.
"""

from __future__ import annotations

import gc
import math
import re
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

ROUNDS = 3
MOST_ROUNDS = 9
SURE = 0.03
"""Pairs are added to `ROUNDS` until the truth is known so well: half the distance of the quartiles of the pairs' gains
over the square root of their number, relative to the median. A virtual machine may change its speed by 1.6 within a
minute, and a gain that is not known to a few percent cannot tell whether a forecast lies within 20 % of it."""
MOST_LEADING = 0.2
FEWEST_LEADING = 3
"""Leading steps that the truth leaves out: a fifth, at least three."""

PREFETCH = 2
"""Batches that torch's workers fetch ahead, each, where nobody says how many."""
LONGER = 5
"""A cured loop that is many times as fast runs for so many times the batches."""


def step_s(before: str, cell: str, tail: bool = False, few: bool = False) -> float:
    """Seconds a step of the bare cell, the first fifth of its steps left out.

    Args:
        tail: count what follows the last step until the end of the cell. few: its steps are few and long, and the
            first alone leads.

    Raises:
        RuntimeError: if the cell made too few steps to time.
    """
    marks: list[float] = []
    clock = time.perf_counter
    with as_it_was():
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(before, "<above>", "exec"), namespace)
        code = compile(cell, "<cell>", "exec")
        handle = register_optimizer_step_post_hook(lambda *_: marks.append(clock()))
        try:
            exec(code, namespace)
            end = clock()
        finally:
            handle.remove()
            namespace.clear()  # the loop's iterators and their workers end here, not in the next cell's time
    lead = 1 if few else max(FEWEST_LEADING, int(MOST_LEADING * len(marks)))
    if len(marks) <= lead + (1 if few else 5):
        raise RuntimeError(f"the cell made {len(marks)} steps, too few to time")
    if tail:
        return (end - marks[lead]) / (len(marks) - 1 - lead)
    last = len(marks) - 1 - min(stock(before + cell), (len(marks) - lead) // 2)
    return (marks[last] - marks[lead]) / (last - lead)


def stock(text: str) -> int:
    """Batches that lie ready when the workers have fetched the last one: steps that nobody fetches beside.

    They were fetched in the steps that are left out at the begin; counting both would make workers too fast.
    """
    workers = [int(count) for count in re.findall(r"num_workers=(\d+)", text)]
    ahead = [int(count) for count in re.findall(r"prefetch_factor=(\d+)", text)]
    return max(workers, default=0) * max(ahead, default=PREFETCH)


class as_it_was:  # read as a phrase
    """Puts back what a cell may turn in torch, and frees what it left, so that no cell is timed under another's."""

    def __enter__(self) -> None:
        self.threads, self.anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
        torch.manual_seed(0)
        gc.collect()

    def __exit__(self, *error: object) -> None:
        torch.set_num_threads(self.threads)
        torch.autograd.set_detect_anomaly(self.anomaly)
        gc.collect()


def known(gains: Sequence[float], rounds: int = ROUNDS) -> bool:
    """Whether there are pairs enough: `rounds` at least (a single one where one was asked for), then see `SURE`."""
    if len(gains) < rounds:
        return False
    if rounds < 2 or len(gains) >= MOST_ROUNDS:
        return True
    low, middle, high = statistics.quantiles(gains, n=4, method="inclusive")
    return (high - low) / (2.0 * middle * math.sqrt(len(gains))) <= SURE


def longer(before: str) -> str:
    """The notebook with `LONGER` times the batches or epochs, where a line `LENGTH = ...` or `EPOCHS = ...` says so."""
    return re.sub(
        r"^(LENGTH|EPOCHS) = (\d+)", lambda found: f"{found[1]} = {LONGER * int(found[2])}", before, flags=re.M
    )

"""Measures what it costs on this machine to draw an epoch's order as a list, as torch's samplers do, and to free it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch

FEWEST: Final = 10_000
"""Indices that take half a millisecond or less: of fewer nobody notices the drawing."""
MOST: Final = 1 << 18
"""Indices that are drawn for it, at most: some 10 ms."""
TRIES: Final = 3
"""The first meets new memory; the fastest counts, as nothing makes one shorter."""


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of `Speeds` for the largest dataset of the run, if it is large; see `after_run.py`."""
    most = max((one.dataset_len or 0 for one in facts.get("loaders") or ()), default=0)
    return drawing(min(most, MOST)) if most >= FEWEST else {}


@cache
def drawing(count: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """`drawn_index_s` and `freed_index_s`, once in a process for so many; draws from a generator of its own."""
    draws, frees = [], []
    for _ in range(TRIES):
        begin = clock()
        order = torch.randperm(count, generator=torch.Generator(), device="cpu").tolist()
        drawn = clock()
        del order
        draws.append(drawn - begin)
        frees.append(clock() - drawn)
    return {"drawn_index_s": min(draws) / count, "freed_index_s": min(frees) / count}

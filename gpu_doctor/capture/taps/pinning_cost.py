"""Measures how fast this machine copies memory, which is what pinning a batch takes once the pinned memory is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import torch

SIZE: Final = 1 << 24
"""Bytes, more than the caches of a core: 2 ms."""
ROUNDS: Final = 3


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A figure of `Speeds` for a run on a GPU; see `after_run.py`."""
    return copying() if str(facts.get("device", "cpu")).startswith("cuda") else {}


@cache
def copying(clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """`copied_bytes_per_s`, once in a process: the most of some rounds, by torch's own copy, as `pin_memory` copies."""
    spent = []
    with torch.inference_mode(False):
        source, target = (torch.zeros(SIZE, dtype=torch.uint8, device="cpu") for _ in range(2))
        for _ in range(ROUNDS):
            begin = clock()
            target.copy_(source)
            spent.append(clock() - begin)
    return {"copied_bytes_per_s": SIZE / max(min(spent), 1e-9)}

"""Stretches of steps from a synchronised start to a synchronised end, in turns; knows torch and nothing of ours."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from tests.support.turns import Over, over


def synchronize(device: str) -> None:
    """Waits until all that was launched is done."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def emptied(device: str) -> None:
    """Gives back what is no longer used."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def stretch_s(train: Callable[[int], object], warm: int, steps: int, device: str) -> float:
    """Seconds a step of `train(steps)`, after `train(warm)`."""
    train(warm)
    synchronize(device)
    begin = time.perf_counter()
    train(steps)
    synchronize(device)
    return (time.perf_counter() - begin) / steps


def in_turns(sides: Mapping[str, Callable[[], float]], turns: int) -> dict[str, list[float]]:
    """What each side gives in each turn; their order changes from turn to turn (A B B A)."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name in sides if turn % 2 == 0 else reversed(list(sides)):
            found[name].append(sides[name]())
    return found


def gain(before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """So many times as fast: the median over turns."""
    return statistics.median(one / other for one, other in zip(before_s, after_s, strict=True))


def costs(bare_s: Sequence[float], other_s: Sequence[float]) -> Over:
    """What the other side costs more, as a share: median and quartiles over turns."""
    return over(bare_s, other_s)

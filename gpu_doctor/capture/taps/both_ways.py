"""Measures how much longer one way of computing something takes on this CPU than another, when the run is over."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

import torch

ROUNDS: Final = 8
"""Of both ways by turns,"""
FEWEST: Final = 3
"""or so many where they take long:"""
PATIENCE_S: Final = 0.5
"""no further round begins after so long."""
Clock: TypeAlias = Callable[[], float]
Clocks: TypeAlias = tuple[Clock, Clock]
"""The wall's, and the CPU clock of the calling thread, in seconds."""
CLOCKS: Final[Clocks] = (time.perf_counter, time.thread_time)


@contextmanager
def as_in_training() -> Iterator[None]:
    """Gradients are on and autocast is off; the caller's modes and random numbers are left as they are."""
    with torch.random.fork_rng(devices=()), torch.inference_mode(False), torch.enable_grad():
        with torch.autocast("cpu", enabled=False):
            yield


def longer_s(
    slow: Callable[[], float], fast: Callable[[], float], clocks: Clocks, times: float = 1.0
) -> tuple[float, float, float]:
    """Seconds, least, median and most, that one way takes longer than the other.

    Compared by the CPU clock of the calling thread, which takes its part in all that is computed, and stretched as much
    as all of it together took longer by the wall: where others use the cores, the run's own steps were stretched too.

    Args:
        slow: computes once the slow way and returns the CPU seconds that it took.
        fast: the same the fast way.
        clocks: see `Clocks`.
        times: as often the run computed what is timed once.
    """
    wall, cpu = clocks
    slow(), fast()  # pays for what is met once
    begin_wall, begin_cpu = wall(), cpu()
    took: list[tuple[float, float]] = []
    while len(took) < FEWEST or (len(took) < ROUNDS and wall() - begin_wall < PATIENCE_S):
        took.append((slow(), fast()))
    stretched = max((wall() - begin_wall) / max(cpu() - begin_cpu, 1e-9), 1.0)
    longer = sorted(max(one - other, 0.0) * stretched * times for one, other in took)
    return longer[0], statistics.median(longer), longer[-1]

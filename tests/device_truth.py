"""What a GPU really did, out of torch's own profiler (Kineto): when its kernels and copies ran, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Spans = npt.NDArray[np.float64]
"""Shape (spans, 2): begin and end in microseconds of one clock."""


@dataclass(frozen=True)
class DeviceTruth:
    """A stretch of steps on the device."""

    gap_share: float
    """Time between the last work of a step and the first of the next, over all time."""
    exposed_wait_share: float | None
    """Time in which the host waited for a batch and the device had nothing to do, over all time; None = not traced."""
    busy_share: float
    """Time in which at least one kernel or copy ran, over all time."""


def united(spans: Spans) -> Spans:
    """The same time in spans that do not touch, in their order."""
    found: list[list[float]] = []
    for begin, end in spans[np.argsort(spans[:, 0])]:
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([float(begin), float(end)])
    return np.asarray(found).reshape(-1, 2)


def overlap(one: Spans, other: Spans) -> float:
    """Microseconds that lie in spans of both; the spans of each do not overlap."""
    total = 0.0
    for begin, end in one:
        total += float(np.clip(np.minimum(other[:, 1], end) - np.maximum(other[:, 0], begin), 0.0, None).sum())
    return total


def truth(work: Spans, steps: int, waits: Spans | None = None) -> DeviceTruth:
    """What the device did in `steps` steps that all launch the same number of kernels and copies.

    Args:
        work: of kernels and copies. steps: how many. waits: of the host, on the same clock; None = not traced.

    Raises:
        ValueError: if the steps did not launch equally much: then it cannot be told which work is whose.
    """
    if not len(work) or len(work) % steps:
        raise ValueError(f"{len(work)} kernels and copies are not those of {steps} equal steps.")
    by_step = work[np.argsort(work[:, 0])].reshape(steps, -1, 2)
    first, last = by_step[:, :, 0].min(axis=1), by_step[:, :, 1].max(axis=1)
    # From one step's end to the next one's: each holds one gap and one step, as our rows do.
    whole = float(last[-1] - last[0])
    gaps = np.maximum(first[1:] - last[:-1], 0.0)
    busy = united(work)
    within = np.asarray([[last[0], last[-1]]])
    exposed = None
    if waits is not None:
        idle = np.column_stack([busy[:-1, 1], busy[1:, 0]])
        clipped = np.clip(idle, last[0], last[-1])
        exposed = overlap(united(waits), clipped) / whole
    return DeviceTruth(float(gaps.sum()) / whole, exposed, overlap(within, busy) / whole)


def device_spans(events: Iterable[Any], cuda: Any) -> Spans:
    """Kernels and copies among a profiler's events; `cuda`: torch's name for that kind of device."""
    found = [
        (one.time_range.start, one.time_range.end)
        for one in events
        if one.device_type == cuda and not getattr(one, "is_user_annotation", False)
    ]
    return np.asarray(found, dtype=np.float64).reshape(-1, 2)


def named_spans(events: Iterable[Any], name: str, cuda: Any) -> Spans:
    """The host's spans of a `record_function` of that name."""
    found: Sequence[tuple[float, float]] = [
        (one.time_range.start, one.time_range.end) for one in events if one.name == name and one.device_type != cuda
    ]
    return np.asarray(found, dtype=np.float64).reshape(-1, 2)

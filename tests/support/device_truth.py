"""What a GPU really did, out of torch's own profiler (Kineto): when its kernels and copies ran, step by step.

It takes our own definitions (`gpu_doctor.capture.gpu.marks`): a step is from its first kernel to its last one.
What lies between the steps is the gap, and a copy between host and device in it is exposed transfer, not the step's
first work. Of the rest of the gap, the exposed wait is the time in which the host waited for a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Spans = npt.NDArray[np.float64]
"""Shape (spans, 2): begin and end in microseconds of one clock."""
COPIES = ("Memcpy HtoD", "Memcpy DtoH")
"""How Kineto names copies between host and device; those within a device are work like any kernel."""
RUNTIME_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
"""How it names the driver's calls in which a host waits for a device."""


@dataclass(frozen=True)
class Trace:
    """A stretch of steps as the profiler saw it."""

    kernels: Spans
    copies: Spans
    waits: Spans | None = None
    """Of the host for batches; None = not traced."""


@dataclass(frozen=True)
class DeviceTruth:
    """A stretch of steps on the device; shares are of the time from the first step's end to the last one's."""

    gap_share: float
    """Time between the last kernel of a step and the first of the next."""
    exposed_wait_share: float | None
    """Time in the gaps in which the host waited for a batch and nothing was copied; None = not traced."""
    exposed_transfer_share: float
    """Time in the gaps in which something was copied."""
    busy_share: float
    """Time in which at least one kernel ran."""
    memcpy_share: float
    """Time in which something was copied, inside of the steps or between them."""
    seconds: float


def united(spans: Spans) -> Spans:
    """The same time in spans that do not touch, in their order."""
    found: list[list[float]] = []
    for begin, end in spans[np.argsort(spans[:, 0])]:
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([float(begin), float(end)])
    return np.asarray(found).reshape(-1, 2)


def common(one: Spans, other: Spans) -> Spans:
    """The time that lies in spans of both; the spans of each do not overlap."""
    found = []
    for begin, end in one:
        both = np.column_stack([np.maximum(other[:, 0], begin), np.minimum(other[:, 1], end)])
        found.append(both[both[:, 1] > both[:, 0]])
    return np.concatenate(found) if found else np.empty((0, 2))


def without(one: Spans, other: Spans) -> Spans:
    """The time that lies in spans of `one` and in none of `other`; both are in order and do not overlap."""
    found = []
    for begin, end in one:
        for taken, left in other:
            if taken < end and left > begin:
                if taken > begin:
                    found.append((begin, taken))
                begin = max(begin, left)
        if end > begin:
            found.append((begin, end))
    return np.asarray(found, dtype=np.float64).reshape(-1, 2)


def length(spans: Spans) -> float:
    """Microseconds of spans that do not overlap."""
    return float((spans[:, 1] - spans[:, 0]).sum())


def truth(trace: Trace, steps: int) -> DeviceTruth:
    """What the device did in `steps` steps that all launch the same number of kernels.

    The first and the last step only bound the stretch.

    Raises:
        ValueError: if the number of kernels is no multiple of the number of steps: then it cannot be told which is
            whose.
    """
    work = trace.kernels
    if not len(work) or len(work) % steps:
        raise ValueError(f"{len(work)} kernels are not those of {steps} equal steps.")
    by_step = work[np.argsort(work[:, 0])].reshape(steps, -1, 2)
    first, last = by_step[:, :, 0].min(axis=1), by_step[:, :, 1].max(axis=1)
    # From one step's end to the next one's: each holds one gap and one step, as our rows do.
    within = np.asarray([[last[0], last[-1]]])
    whole = length(within)
    gaps = np.column_stack([last[:-1], first[1:]])
    gaps = gaps[gaps[:, 1] > gaps[:, 0]]
    copies = united(trace.copies)
    exposed = None
    if trace.waits is not None:
        waited = common(united(trace.waits), gaps)
        exposed = (length(waited) - length(common(waited, copies))) / whole
    return DeviceTruth(
        gap_share=length(gaps) / whole,
        exposed_wait_share=exposed,
        exposed_transfer_share=length(common(copies, gaps)) / whole,
        busy_share=length(common(within, united(work))) / whole,
        memcpy_share=length(common(within, copies)) / whole,
        seconds=whole * 1e-6,
    )


def trace(events: Iterable[Any], cuda: Any, wait: str | None = None) -> Trace:
    """Sorts a profiler's events.

    Args:
        events: of the profiler. cuda: torch's name for that kind of device.
        wait: the `record_function` around the host's waits for batches; None = they are not traced.
    """
    kernels: list[tuple[float, float]] = []
    copies: list[tuple[float, float]] = []
    waits: list[tuple[float, float]] = []
    for one in events:
        span = one.time_range.start, one.time_range.end
        if one.device_type != cuda:
            if one.name == wait:
                waits.append(span)
        elif _works(one):
            (copies if one.name.startswith(COPIES) else kernels).append(span)
    return Trace(_spans(kernels), _spans(copies), None if wait is None else _spans(waits))


def runtime_waits(events: Iterable[Any], cuda: Any) -> dict[str, int]:
    """How often the host called the driver to wait for the device, by the call's name."""
    names = [one.name for one in events if one.device_type != cuda]
    return {name: names.count(name) for name in RUNTIME_WAITS if name in names}


def _works(event: Any) -> bool:
    """Whether a device's event is a kernel, a copy or a memset, and no region of the user's nor a wait."""
    kind = str(getattr(event, "activity_type", "")).lower()
    return not getattr(event, "is_user_annotation", False) and "sync" not in kind and "annotation" not in kind


def _spans(found: list[tuple[float, float]]) -> Spans:
    return np.asarray(found, dtype=np.float64).reshape(-1, 2)

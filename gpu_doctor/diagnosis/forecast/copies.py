"""What pinned memory and copies that are not waited for should give: bytes over bandwidths, from vitals alone.

A copy to the GPU lies in the queue before the step's kernels, so that the least it costs is its bytes over what the
link gives from pinned memory. How fast that is comes from copies of pinned memory that were waited for (this run's or
another's), else from the link as NVML reads it (PCIe's generation and lanes, NVLink-C2C), else from pageable copies,
which pinned ones beat about twofold (CUDA C++ best practices guide, "Pinned Memory"). GPU: not yet run on one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.fields import Vitals

LINK_USED: Final = 0.8
"""Of a link's nominal bytes/s that copies of pinned memory get (25 of 31.5 GB/s over 16 lanes of PCIe 4)."""
LINK_DOUBT: Final = (0.5, 0.95)
"""Least (a switch or another socket between, shared links) and most."""
PINNED_GAINS: Final = (1.3, 2.0, 4.0)
"""Low, usual, high: pinned over pageable copies where nothing is known of the link."""
MEASURED_DOUBT: Final = 0.15
COPY_S: Final = 1e-5
"""A copy's call and driver, however few bytes it moves: tens of small ones cost as much pinned."""
PIN_BYTES_PER_S: Final = 8e9
"""Where nobody timed it: a core that copies a batch into pinned memory, as fast as one channel of DDR4-2400 to 3200
(19 to 26 GB/s) reads, fetches what it overwrites, and writes. With workers a thread of the loader does that ahead of
time; without, the loop does it itself in `next()`."""
PIN_DOUBT: Final = (0.5, 2.0)
PINNED: Final = 0.1
"""Up to this part of the copies may be pageable in a run that tells how fast pinned ones are."""
MOSTLY: Final = 0.5


@dataclass(frozen=True)
class Copies:
    """Seconds of a step under a setting, as expected and at best and worst, and what binds its copies."""

    step_s: float
    best_s: float
    worst_s: float
    why: str


def pinned_rate(v: Vitals) -> float | None:
    """Bytes/s of this run's copies from pinned memory; None where they are not waited for, or not pinned.

    This is the least that the link can do: see `_copying_s`.
    """
    traffic, copying_s, nbytes = v.traffic, _copying_s(v), v.transfer_bytes_per_step
    if traffic is None or not traffic.to_device or not copying_s or not nbytes:
        return None
    if v.pageable_share is None or v.pageable_share > PINNED or traffic.blocking_pinned < MOSTLY * traffic.to_device:
        return None
    return nbytes / copying_s


def _copying_s(v: Vitals) -> float:
    """Seconds of a step's copies where they are waited for, at most.

    Such a copy also waits for the work queued before it: of that wait the copying is what the device spends on it, the
    gap that it leaves; where there is no gap, the wait is all that is known.
    """
    waited, exposed = v.transfer_share or 0.0, v.exposed_transfer_share or 0.0
    return min(waited, exposed or waited) * (v.step_wall_s or 0.0)


def copies_with(v: Vitals, pins: bool, others: Sequence[Vitals] = ()) -> Copies | None:
    """A step with copies from pinned memory (`pins`: that are pageable now), or with ones that are not waited for.

    Args:
        v: of the loop as it is.
        pins: the loader is to pin its batches.
        others: of other runs of the same loop.

    Returns:
        None on a CPU device, and where neither copies nor link were measured well enough to tell.
    """
    step_s, exposed, nbytes = v.step_wall_s, v.exposed_transfer_share, v.transfer_bytes_per_step
    if not v.on_gpu or not step_s or exposed is None or not nbytes or not v.transfer_share or v.pageable_share is None:
        return None
    rates = _rates(v, pins, others)
    if rates is None:
        return None
    (low, usual, high), source = rates
    calls_s = COPY_S * (v.transfers_per_step or 1.0)
    # Without workers it is the loop itself that copies each batch into pinned memory before it copies it to the GPU.
    pinning_s = nbytes / (v.setup.speeds.copied_bytes_per_s or PIN_BYTES_PER_S) if pins and not v.workers else 0.0

    def step(rate: float, doubt: float) -> float:
        # The rest of a wait is none of the link's: what remains is never more than what is exposed now.
        left_s = min(nbytes / rate + calls_s, exposed * step_s)
        return step_s * (1.0 - exposed) + left_s + pinning_s * doubt

    why = f"copies of {formatting.size(nbytes)} a step at {formatting.bandwidth(usual)}, {source}"
    if pinning_s:
        why += ", and the loop pins each batch itself as there are no workers"
    return Copies(step(usual, 1.0), step(high, PIN_DOUBT[0]), step(low, PIN_DOUBT[1]), why)


def _rates(v: Vitals, pins: bool, others: Sequence[Vitals]) -> tuple[tuple[float, float, float], str] | None:
    """Low, usual and high bytes/s from pinned memory, and where that is known from, as the end of a sentence."""
    nominal, parts = v.link_bytes_per_s, (LINK_DOUBT[0], LINK_USED, LINK_DOUBT[1])
    link = None if nominal is None else [nominal * part for part in parts]
    seen = max((rate for one in (v, *others) if (rate := pinned_rate(one)) is not None), default=None)
    if pins and seen is not None:
        most = link[2] if link is not None else seen * (1.0 + MEASURED_DOUBT)
        return (seen * (1.0 - MEASURED_DOUBT), seen, max(most, seen)), "as copies from pinned memory were measured"
    if link is not None:
        least = max(link[0], min(seen or 0.0, link[1]))
        return (least, link[1], link[2]), f"at most what {v.link_name} gives"
    copying_s = _copying_s(v)
    if not pins or not copying_s or not v.transfer_bytes_per_step:
        return None  # how much of a pinned copy's wait is copying cannot be told without the link
    pageable = v.transfer_bytes_per_step / copying_s
    low, usual, high = (pageable * gain for gain in PINNED_GAINS)
    return (low, usual, high), f"about twice what pageable copies reach here ({formatting.bandwidth(pageable)})"

"""Shares of the wall-clock, 0..1, in which a GPU idles: one for syncs, for copies, for the compiler and for launches.

Rules and the verdict read the same figures here, so that no second is explained twice. GPU: not yet run on one.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.compiling import recompiled_share
from gpu_doctor.diagnosis.vitals.fields import Vitals

IDLE_SHARE: Final = 0.05
"""Smallest share of idle time that a sync must cause to be reported."""
MOSTLY: Final = 0.5
"""Part of the copies that must start from pinned memory and be waited for to count as most of them."""
OPTIMIZER_SHARE: Final = 0.10
"""Share of the wall-clock from which on an optimizer that is not fused is a state of its own."""


def round_trip_share(vitals: Vitals) -> float:
    """Share in which tensors are on their way to the host and back, while nothing is queued on the GPU."""
    traffic, run_s = vitals.traffic, vitals.run_s
    return min(traffic.round_trip_s / run_s, 1.0) if traffic is not None and run_s else 0.0


def blocks_on_pinned(vitals: Vitals) -> bool:
    """True if most copies start from pinned memory and the loop waits for them."""
    traffic = vitals.traffic
    if traffic is None:
        return False
    return traffic.to_device > 0 and traffic.blocking_pinned >= MOSTLY * traffic.to_device


def behind_copies_share(vitals: Vitals) -> float:
    """Share in which the GPU idles after copies that the loop waited for, the copying itself left out.

    The host waits in such a copy until the queue is empty. Without that wait, the queue would hide what the host does
    before it launches again, for as long as the host waited at most.
    """
    if not vitals.on_gpu or not blocks_on_pinned(vitals):
        return 0.0
    exposed, gap = vitals.exposed_transfer_share or 0.0, vitals.gpu_gap_share or 0.0
    idle = gap - exposed - vitals.tripped_share - (vitals.exposed_wait_share or 0.0)
    return max(min(idle, (vitals.transfer_share or 0.0) - exposed), 0.0)


def recompiling_share(vitals: Vitals) -> float:
    """Share in which torch.compile compiles functions more often than a sound loop needs."""
    return recompiled_share(vitals.recompiled)


def announced_sync_share(vitals: Vitals) -> float:
    """Share in which the GPU idles because the host waited for a value (`.item()`); 0 below 5 %.

    It is never more than the wait itself, as the host's other work remains when the wait goes. It is measured by the
    gap. If the GPU outruns its host it is an upper bound, because the device's clock does not see idling within phases.
    """
    sync, gap = vitals.sync_share, vitals.gpu_gap_share
    if sync is None or gap is None or sync < IDLE_SHARE:
        return 0.0
    idle = gap
    if vitals.gpu_outruns_host:
        idle = max(gap, min(vitals.gpu_idle_at_most, 1.0 - sync))  # while the host waits, the GPU works
    cost = min(idle - _explained(vitals), sync * _without_trips(vitals))
    return cost if cost >= IDLE_SHARE else 0.0


def launching(vitals: Vitals) -> float | None:
    """Share that launching the model's kernels takes at most; None if it was not measured.

    These are the host's seconds in phases at whose end the GPU had done all that was launched. Seconds that another
    state explains are left out: trips to the host, the compiler, an optimizer that is not fused.
    """
    share = vitals.launching_share
    if share is None:
        return None
    explained = round_trip_share(vitals) + recompiling_share(vitals) + _loose_optimizer_share(vitals)
    return max(min(share, 1.0 - (vitals.sync_share or 0.0)) - explained, 0.0)  # while the host waits, the GPU works


def _explained(vitals: Vitals) -> float:
    """Part of the gap that waits for data, copies, trips, costly calls and the compiler take."""
    taken = vitals.exposed_share + round_trip_share(vitals) + vitals.chores_between_share
    return taken + recompiling_share(vitals)


def _without_trips(vitals: Vitals) -> float:
    """Part of the syncs, 0..1, that belong to no trip to the host and back, by their number."""
    traffic, waits = vitals.traffic, vitals.syncs_per_step
    if traffic is None or not waits or not vitals.steps:
        return 1.0
    return max(1.0 - traffic.round_trips / vitals.steps / waits, 0.0)


def _loose_optimizer_share(vitals: Vitals) -> float:
    """Share of an optimizer that could be fused and is not; 0 if it is too small to be a state of its own."""
    share, facts = vitals.optimizer_share or 0.0, vitals.optimizer_facts or ()
    loose = any(optimizer.can_fuse and not optimizer.fused for optimizer in facts)
    return share if loose and share >= OPTIMIZER_SHARE else 0.0

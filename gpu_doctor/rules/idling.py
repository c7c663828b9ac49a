"""What else a GPU idles for than launches and small batches: so that no second of it is billed twice."""

from __future__ import annotations

from gpu_doctor.rules.compute import unfused_optimizer
from gpu_doctor.rules.host import host_sync
from gpu_doctor.rules.transfer.device_round_trips import tripping_share
from gpu_doctor.vitals import Vitals


def idle_elsewhere(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, in which the GPU idles while the host is not launching the model's kernels.

    That is the loop's own Python and calls (slow-python, checkpoint-stall and their like) or trips to the host, what
    follows a wait for values, and an optimizer in pieces: each has a rule of its own. With a full queue they are
    hidden, and there is no idling to explain.
    """
    own = max((vitals.other_share or 0.0) - (vitals.loss_share or 0.0), 0.0) + tripping_share(vitals)
    others = (host_sync.check(vitals), unfused_optimizer.check(vitals))
    return min(own + sum(one.cost_share for one in others if one is not None), 1.0)

"""What else a GPU idles for than launches and small batches: so that no second of it is billed twice."""

from __future__ import annotations

from gpu_doctor.diagnosis.rules.compute import recompiles, unfused_optimizer
from gpu_doctor.diagnosis.rules.host import hidden_sync, host_sync
from gpu_doctor.diagnosis.rules.transfer.device_round_trips import tripping_share
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import FEW_LOOKS
from gpu_doctor.recording import LineCost


def forward_aside(vitals: Vitals) -> float:
    """Share of the wall-clock in statements of forwards that no output depends on, 0..1; 0 where few looks saw it."""
    share = sum(one.share for one in vitals.lines if aside(one))
    if vitals.looks is not None and share * vitals.looks < FEW_LOOKS:
        return 0.0
    return min(share, vitals.forward_share or 0.0)


def aside(line: LineCost) -> bool:
    """Whether a line cost is of such a statement."""
    return line.phase == "forward" and line.beside == "model" and not line.in_worker


def idle_elsewhere(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, in which the GPU idles while the host is not launching the model's kernels.

    That is the loop's own Python and calls (slow-python, checkpoint-stall and their like) and the forward's, the
    compiler's work, or trips to the host, what follows a wait for values, and an optimizer in pieces: each has a rule
    of its own. With a full queue they are hidden, and there is no idling to explain.
    """
    own = max((vitals.other_share or 0.0) - (vitals.loss_share or 0.0), 0.0) + tripping_share(vitals)
    own += forward_aside(vitals) + recompiles.again_share(vitals) + hidden_sync.within_share(vitals)
    others = (host_sync.check(vitals), unfused_optimizer.check(vitals))
    return min(own + sum(one.cost_share for one in others if one is not None), 1.0)

"""What a GPU that outruns its host waits for: so that no second of the host is billed twice."""

from __future__ import annotations

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.compute import optimizer, recompiles
from gpu_doctor.diagnosis.rules.host import hidden_sync
from gpu_doctor.diagnosis.rules.transfer.device_round_trips import tripping_share
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LineCost


def forward_aside(vitals: Vitals) -> float:
    """Share of the wall-clock (0..1) in statements of forwards that need not be in every step.

    No output depends on them, or they make the same each time; 0 where few looks saw it.
    """
    share = total(aside_lines(vitals))
    return min(share, vitals.forward_share or 0.0) if vitals.looked_at(share) else 0.0


def aside_lines(vitals: Vitals) -> list[LineCost]:
    """Line costs of such statements."""
    return [one for one in vitals.lines_in("forward") if one.beside in ("model", "constant")]


def computed_aside(vitals: Vitals) -> float:
    """Of `forward_aside`, what torch computes on a CPU: constants that are made of whole tensors."""
    lines = (one for one in aside_lines(vitals) if one.beside == "constant" and (one.in_torch or one.computes))
    return 0.0 if vitals.on_gpu else min(total(lines), forward_aside(vitals))


def emptied(vitals: Vitals) -> str:
    """For how long the GPU kept up with its host, as evidence; NVML's reading beside it, as a symptom."""
    util = vitals.gpu_util_pct
    seen = "" if util is None else f"; NVML utilisation {formatting.percent(util)}"
    return f"the GPU keeps up with the host's launches in {formatting.share(vitals.caught_up_share)} of its steps{seen}"


def launched(vitals: Vitals) -> str:
    """How long that is, as evidence."""
    spent = formatting.share(vitals.launching_share)
    return f"that is {spent} of the time; for how much of it kernels run is not known"


def launching(vitals: Vitals) -> float | None:
    """Share of the wall-clock, 0..1, that launching the model's kernels takes at most; None where it is not known.

    The host's seconds in the phases that launch, of steps that the GPU had finished when the host had launched them,
    by the host's clock alone. Less what has rules of its own there: an optimizer in pieces, trips to the host, waits
    that nothing announces, the compiler's work, the forward's own Python. Other waits and copies are phases of their
    own.
    """
    share = vitals.launching_share
    if share is None:
        return None
    pieces = optimizer.check(vitals) if vitals.gpu_outruns_host else None
    own = forward_aside(vitals) + tripping_share(vitals) + ((pieces.cost_share or 0.0) if pieces is not None else 0.0)
    own += recompiles.again_share(vitals) + hidden_sync.within_share(vitals)
    return max(min(share, 1.0 - (vitals.sync_share or 0.0)) - own, 0.0)  # while the host waits for it, the GPU works

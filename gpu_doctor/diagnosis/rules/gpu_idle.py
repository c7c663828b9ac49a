"""Statements of a forward that need not be in every step."""

from __future__ import annotations

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

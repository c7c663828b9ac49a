"""What of a loop's wall-clock its forward, loss and backward take, and what another way of computing them saves."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.vitals.fields import Vitals

BACKWARD_LEAST: Final = 0.8
"""Plain backward over plain forward, at least (0.8 to 2.4 in 9 loops)."""


def both(vitals: Vitals) -> float | None:
    """Share in which the device has forward and backward to do, 0..1, with the loss between them on a CPU."""
    if vitals.on_gpu:
        return half_precision.products_share(vitals)
    if vitals.forward_share is None or vitals.backward_share is None:
        return None
    return vitals.passes_share


def computing(vitals: Vitals) -> float | None:
    """The same; None where it does not set the loop's pace."""
    return both(vitals) if gpu_pace.kernels_set_it(vitals) else None

"""What of a loop's wall-clock its forward, loss and backward take, and what another way of computing them saves."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.vitals.fields import Vitals

BACKWARD_LEAST: Final = 0.8
BACKWARD_USUAL: Final = 1.4
BACKWARD_BY_PRODUCTS: Final = 2.0
"""Plain backward over plain forward: 0.8 to 2.4 in 9 loops, in the middle 1.4 (a ratio of like work, which machines
differ in less than loops do; more with a recomputed forward); and two products a weight to one (Kaplan et al. 2020,
2.1)."""


def both(vitals: Vitals) -> float | None:
    """Share in which the device has forward and backward to do, 0..1, with the loss between them on a CPU."""
    if vitals.on_gpu:
        return half_precision.products_share(vitals)
    if vitals.forward_share is None or vitals.backward_share is None:
        return None
    return vitals.passes_share


def computing(vitals: Vitals) -> float | None:
    """The same; None where it does not set the loop's pace."""
    spent = both(vitals)
    if spent is None or not gpu_pace.kernels_set_it(vitals):
        return None
    return spent


def loss(vitals: Vitals) -> float | None:
    """Share between forward and backward: by the device's clock what is left of its phases."""
    if not vitals.on_gpu:
        return vitals.loss_share
    parts = (vitals.gpu_forward_share, vitals.gpu_backward_share, vitals.gpu_optimizer_share)
    busy = vitals.gpu_busy_share
    return None if busy is None or None in parts else max(busy - sum(part or 0.0 for part in parts), 0.0)


def backward(vitals: Vitals) -> float | None:
    """Share of the backward."""
    return vitals.gpu_backward_share if vitals.on_gpu else vitals.backward_share


def saved(vitals: Vitals, longer_s: tuple[float, ...] | None) -> tuple[float, float, float] | None:
    """Shares, low, usual and high, that another way saves on a CPU, by both ways as they were timed after the run.

    Args:
        vitals: of the loop.
        longer_s: how much longer its own way takes in one forward and backward: least, usual, most; None = not timed.
    """
    step_s, most = vitals.host_step_s, both(vitals)
    if longer_s is None or len(longer_s) != 3 or not step_s or most is None:
        return None
    low, usual, high = (min(one * vitals.rounds / step_s, most) for one in longer_s)
    return low, usual, high

"""Half precision, for several rules: the code to paste, and the share of the time that it can shorten."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

HALVES: Final = ("float16", "bfloat16")
SCALED: Final = (
    'scaler = torch.amp.GradScaler("cuda")  # once, before the loop\n'
    'with torch.autocast("cuda", dtype=torch.float16):\n'
    "    loss = criterion(model(inputs), targets)\n"
    "scaler.scale(loss).backward()\n"
    "scaler.step(optimizer)\n"
    "scaler.update()"
)
"""Code to train in float16; without a scaler small gradients become zero."""


def code(vitals: Vitals, dtype: str) -> str:
    """Returns the lines to paste for autocast in a dtype of torch, such as `float16`, for training or prediction."""
    if vitals.predicts:
        return f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    outputs = model(inputs)'
    if dtype == "float16":
        return SCALED
    return f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    loss = criterion(model(inputs), targets)'


def compared(vitals: Vitals) -> str:
    """Names what the user should compare after a change of the number format."""
    return "results" if vitals.predicts else "losses of the trial"


def products_share(vitals: Vitals) -> float | None:
    """Share of the wall-clock, 0..1, in which the GPU runs forward and backward, where the matrix products are.

    The optimizer is left out: it computes in the parameters' own dtype. If the device's clock did not time the phases,
    this is the share in which the GPU is busy at all; None if that was not measured either.
    """
    forward, backward, busy = vitals.gpu_forward_share, vitals.gpu_backward_share, vitals.gpu_busy_share
    if forward is None or (backward is None and not vitals.predicts):
        return busy
    products = forward + (backward or 0.0)
    return products if busy is None else min(products, busy)

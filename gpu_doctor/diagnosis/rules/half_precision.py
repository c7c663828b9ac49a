"""Number formats, as several rules speak of them: the code of half precision, and the time that it can shorten."""

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
"""Training in float16: without a scaler small gradients become zero."""


def code(vitals: Vitals, dtype: str) -> str:
    """The lines to paste for autocast in a dtype of torch, such as `float16`, in a loop that trains or predicts."""
    if vitals.predicts:
        return f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    outputs = model(inputs)'
    if dtype == "float16":
        return SCALED
    return f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    loss = criterion(model(inputs), targets)'


def compared(vitals: Vitals) -> str:
    """What to compare after a change of the number format."""
    return "results" if vitals.predicts else "losses of the trial"


def products_share(vitals: Vitals) -> float | None:
    """Share of the wall-clock, 0..1, in which the GPU has forward and backward to do, where the products are.

    The optimizer steps in the parameters' own dtype. Where the device's clock did not tell the phases apart, all that
    the GPU is busy; None where that was not read either.
    """
    forward, backward, busy = vitals.gpu_forward_share, vitals.gpu_backward_share, vitals.gpu_busy_share
    if forward is None or (backward is None and not vitals.predicts):
        return busy
    told = forward + (backward or 0.0)
    return told if busy is None else min(told, busy)

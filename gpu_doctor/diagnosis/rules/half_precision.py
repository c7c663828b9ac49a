"""What the rules on number formats share: the code of half precision, and the GPU's time that it can shorten.

By how much, nothing in a recording tells: their findings are hints, without a price or a forecast.
"""

from __future__ import annotations

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR
from gpu_doctor.diagnosis.vitals.arithmetic import CONVOLUTIONS, convolutions_in_tf32, has_tf32, matrices_in_tf32
from gpu_doctor.diagnosis.vitals.fields import Vitals

HALVES = ("float16", "bfloat16")
CUBLAS = ("Linear", "MultiheadAttention", "Bilinear", "NonDynamicallyQuantizableLinear")
"""Layers of matrix products, which `set_float32_matmul_precision` is about."""
CUDNN = (*CONVOLUTIONS, "LSTM", "GRU")
"""Layers that cuDNN computes, which `cudnn.allow_tf32` is about."""
SCALED = (
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


def products_share(vitals: Vitals) -> float | None:
    """Share of the wall-clock, 0..1, in which the GPU has forward and backward to do, where the products are.

    The optimizer steps in the parameters' own dtype whatever the products have. Where the device's clock did not tell
    the phases apart, all that the GPU is busy; None where that was not read either.
    """
    told, busy = _told(vitals), vitals.gpu_busy_share
    return busy if told is None else told if busy is None else min(told, busy)


def worth_a_trial(vitals: Vitals) -> bool:
    """Whether quicker products could be noticed at all: a loop that something else paces, or with few of them, no."""
    if not gpu_pace.kernels_set_it(vitals):
        return False
    return gpu_pace.at_most(vitals, products_share(vitals) or 0.0) >= NAMING_BAR


def bounded(vitals: Vitals) -> str:
    """What quicker products could shorten at most, as evidence: nothing that was measured tells by how much."""
    share = formatting.share(products_share(vitals))
    if _told(vitals) is None:
        taken = f"the GPU is busy {share} of the time"
    else:
        passes = "forward takes" if vitals.predicts else "forward and backward take"
        taken = f"{passes} {share} of the GPU's time"
    return f"{taken}: no more than that can become shorter, and a trial tells how much"


def in_tf32(vitals: Vitals) -> bool:
    """Whether most of the model's layers with float32 products run in TF32 already, which half precision gains less on.

    Convolutions and recurrent layers do by default, matrix products where the loop's code says so.
    """
    by_cudnn = vitals.layers(*CUDNN) > vitals.layers(*CUBLAS)
    return has_tf32(vitals.card) and (convolutions_in_tf32 if by_cudnn else matrices_in_tf32)(vitals.setup)


def compared(vitals: Vitals) -> str:
    """What is to be compared after a change of the number format."""
    return "results" if vitals.predicts else "losses of the trial"


def _told(vitals: Vitals) -> float | None:
    forward, backward = vitals.gpu_forward_share, vitals.gpu_backward_share
    if forward is None or (backward is None and not vitals.predicts):
        return None
    return forward + (backward or 0.0)

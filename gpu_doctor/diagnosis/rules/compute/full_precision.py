"""Matrix products run in float32 although the GPU has tensor cores for half precision.

What it means
    The model's weights are float32 and no autocast is on; GPUs since Volta multiply half-precision matrices several
    times as fast.

Why it costs you
    Forward and backward take longer than they need to, and activations take twice the memory. From compute capability
    8.0 on, convolutions run in TF32 by torch's default, with 10 bits of the mantissa: then there is less to gain. How
    much, a recording in float32 cannot tell, so the finding has no price: a trial tells.

What to try
    `torch.autocast` with bfloat16 (compute capability 8 and later), or float16 with a GradScaler (V100, T4). A trial
    shows the speed-up and both losses. Where float32 has to stay, TF32 (compute capability 8 and later) is one line and
    gains less.

When to leave it
    When the result needs float32 (some losses, scientific models), or when the step is bound by something else.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import half_precision
from gpu_doctor.diagnosis.rules.compute import tf32_off
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import AMPERE, TENSOR_CORES

NEEDS = ("gpu_busy_share", "capability")
EXCLUDES = ("tf32-off",)

TENSOR_ACTIVE_PCT = 1.0
"""Tensor cores that are active less than this are not used (torch-tb-profiler: 0)."""
PRODUCTS = ("Linear", "MultiheadAttention", "Bilinear", *half_precision.CUDNN)
"""Layers that multiply; a look-up in a table (Embedding) makes no product. The output layer of an attention is counted
with it."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU with tensor cores that is busy with float32 products."""
    setup, busy = vitals.setup, vitals.gpu_busy_share
    device = vitals.card
    if busy is None or device is None or not vitals.at_least(TENSOR_CORES):
        return None
    products = vitals.layers(*PRODUCTS)
    tf32 = half_precision.in_tf32(vitals)
    used = not tf32 and (vitals.tensor_active_pct or 0.0) >= TENSOR_ACTIVE_PCT
    if setup.dtype != "float32" or setup.autocast or not products or used or not half_precision.worth_a_trial(vitals):
        return None
    dtype = "bf16" if vitals.at_least(AMPERE) else "fp16"
    name = "bfloat16" if dtype == "bf16" else "float16"
    milder = tf32_off.applies(vitals)
    scaled = " and a gradient scaler" if dtype == "fp16" and not vitals.predicts else ""
    return Finding(
        rule="full-precision",
        headline=f"{'TF32' if tf32 else 'Full precision'} on {formatting.article(device.name)}: half precision is "
        "worth a trial.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"{products} layers with float32 products, no autocast; the GPU is busy {formatting.share(busy)} of the "
            "time",
            half_precision.bounded(vitals),
        ),
        prescriptions=(
            Prescription(
                text=f"{'Run' if vitals.predicts else 'Train'} with {name} autocast{scaled}",
                safety=Safety.CHANGES_TRAINING,
                settings={"amp": dtype},
                code=half_precision.code(vitals, name),
                changes=f"Forward products are rounded to {name}; compare the {half_precision.compared(vitals)}.",
            ),
            *((tf32_off.cure(vitals, "Or stay in float32 and let its products run in TF32"),) if milder else ()),
        ),
    )

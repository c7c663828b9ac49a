"""Float32 matrix products run without tensor cores although the GPU has TF32.

What it means
    `torch.get_float32_matmul_precision()` is "highest", torch's default: matrix products of float32 tensors are
    computed in full float32. Convolutions are allowed TF32 by default; this rule also speaks where the code forbids it
    (`torch.backends.cudnn.allow_tf32 = False`).

Why it costs you
    From compute capability 8.0 on, tensor cores multiply float32 matrices rounded to TF32 several times as fast. What
    that gives this loop nothing in its recording tells, so the finding has no price: a trial tells.

What to try
    `torch.set_float32_matmul_precision("high")`, one line before training. A trial shows the speed-up and both losses.

When to leave it
    When the result needs all 23 bits of the mantissa (some scientific models), or when bfloat16 autocast is an option:
    it gains more.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import half_precision
from gpu_doctor.diagnosis.rules.half_precision import CUBLAS, CUDNN
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import has_tf32
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("gpu_busy_share", "capability")

CODE = 'torch.set_float32_matmul_precision("high")'
CUDNN_CODE = "torch.backends.cudnn.allow_tf32 = True"


def changes(vitals: Vitals) -> str:
    """What changes with it, one sentence."""
    kept = "Float32 products keep 10 of 23 bits of their factors' mantissa"
    return f"{kept}; compare the {half_precision.compared(vitals)}."


def applies(vitals: Vitals) -> bool:
    """Whether float32 products are the model's main work, could run in TF32, and are kept from it by torch's switch."""
    setup = vitals.setup
    by_cudnn, by_cublas = _layers(vitals)
    matrices = setup.flags.get("matmul_precision") == "highest" and by_cublas > by_cudnn
    held = matrices or (setup.flags.get("cudnn_tf32") is False and by_cudnn > by_cublas)
    return has_tf32(setup.card) and held and setup.dtype == "float32" and not setup.autocast


def cure(vitals: Vitals, text: str) -> Prescription:
    """TF32 for the products that are kept from it; by the knob, which turns both switches, where one says so."""
    by_cudnn, by_cublas = _layers(vitals)
    turns = vitals.setup.flags.get("matmul_precision") == "highest"  # what the knob finds
    return Prescription(
        text=text,
        safety=Safety.CHANGES_TRAINING if turns else Safety.BY_HAND,
        settings={"tf32": True} if turns else {},
        code=CODE if by_cublas > by_cudnn else CUDNN_CODE,
        changes=changes(vitals),
    )


def _layers(vitals: Vitals) -> tuple[int, int]:
    return vitals.layers(*CUDNN), vitals.layers(*CUBLAS)


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU with TF32 that is busy with float32 matrix products of full precision."""
    busy = vitals.gpu_busy_share
    device = vitals.setup.card
    if busy is None or device is None or not applies(vitals) or not half_precision.worth_a_trial(vitals):
        return None
    by_cudnn, by_cublas = _layers(vitals)
    switch = 'matmul precision "highest"' if by_cublas > by_cudnn else "cudnn.allow_tf32 is False"
    return Finding(
        rule="tf32-off",
        headline=f"TF32 is off on {formatting.article(device.name)}: float32 products in it are worth a trial.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"{max(by_cublas, by_cudnn)} layers with float32 products, {switch}; the GPU is busy "
            f"{formatting.share(busy)} of the time",
            half_precision.bounded(vitals),
        ),
        prescriptions=(cure(vitals, "Let float32 products run in TF32"),),
    )

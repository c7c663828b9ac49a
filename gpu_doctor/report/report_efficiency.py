"""What a run makes of its card, in words: arithmetic a second beside the peak, joules a sample, its time."""

from __future__ import annotations

import math
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic_kind
from gpu_doctor.diagnosis.vitals.measure import Vitals

_KINDS: Final = {"float32": "float32", "tf32": "TF32", "float16": "float16", "bfloat16": "bfloat16"}


def efficiency(vitals: Vitals) -> list[str]:
    """`412 TFLOP/s, 42 % of the card's dense bfloat16 peak`, `0.31 J/sample` and where the card's time goes by its own
    clock; empty where nothing was measured."""
    said = []
    if vitals.flops_per_s is not None:
        speed = arithmetic_speed(vitals.flops_per_s)
        if vitals.mfu_share is not None:
            kind = _KINDS.get(arithmetic_kind(vitals.setup), "")
            speed += f", {formatting.share(vitals.mfu_share)} of the card's dense {kind} peak"
        said.append(speed)
    if vitals.energy_per_sample_j is not None:
        said.append(f"{formatting.number(vitals.energy_per_sample_j)} J/sample")
    if vitals.gpu_gap_share is not None and vitals.gpu_forward_share is not None:
        parts = {"forward": vitals.gpu_forward_share, "backward": vitals.gpu_backward_share}
        parts |= {"optimizer": vitals.gpu_optimizer_share, "between steps": vitals.gpu_gap_share}
        told = ", ".join(f"{formatting.share(share)} {name}" for name, share in parts.items() if share)
        said.append(f"of the GPU's own time {told}")
    return said


def arithmetic_speed(flops_per_s: float) -> str:
    """`412 TFLOP/s`, in the prefix that leaves one to three digits before the point."""
    if not (math.isfinite(flops_per_s) and flops_per_s > 0):
        return formatting.NOT_MEASURED
    step = min(max(int(math.log10(flops_per_s) // 3), 2), 5)
    return f"{flops_per_s / 10 ** (3 * step):.3g} {'MGTP'[step - 2]}FLOP/s"

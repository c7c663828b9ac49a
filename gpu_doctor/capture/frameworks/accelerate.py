"""Facts about accelerate 1, from its manual."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, Framework, half

_ACCELERATOR: Final = Class(
    "Accelerator", ("accelerate",), {"amp": half('"bf16"', '"fp16"', '"no"', "mixed_precision")}
)

FRAMEWORK: Final = Framework(
    name="accelerate",
    packages=("accelerate",),
    classes=(_ACCELERATOR,),
)

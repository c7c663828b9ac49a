"""accelerate 1, as its manual has it."""

from __future__ import annotations

from typing import Final

from gpu_doctor.capture.frameworks.framework import Class, CopiesItself, Framework, half

_ACCELERATOR: Final = Class(
    "Accelerator", ("accelerate",), {"amp": half('"bf16"', '"fp16"', '"no"', "mixed_precision")}
)

FRAMEWORK: Final = Framework(
    name="accelerate",
    keeps_state=True,
    packages=("accelerate",),
    classes=(_ACCELERATOR,),
    optimizer_passes_on=True,
    copies=CopiesItself(
        by=_ACCELERATOR,
        advice="accelerate copies the batches itself. Use Accelerator(dataloader_config="
        "DataLoaderConfiguration(non_blocking=True)), with DataLoaderConfiguration from accelerate.utils.",
        only_if=".prepare",
        unless=".cuda(",
        in_own_loop=True,
    ),
)

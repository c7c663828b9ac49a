"""Rules of the family hardware: the card or the machine limits the loop."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.hardware import (
    clocks,
    gpu_not_used,
    shared_gpu,
)

MODULES: tuple[ModuleType, ...] = (
    gpu_not_used,
    clocks,
    shared_gpu,
)

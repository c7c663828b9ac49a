"""Rules of the family hardware: the card and the machine hold the loop back."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.hardware import (
    capped_clocks,
    cpu_only_torch,
    driver_too_old,
    shared_gpu,
    slow_link,
    throttled,
    unsupported_architecture,
)

MODULES: tuple[ModuleType, ...] = (
    throttled,
    capped_clocks,
    shared_gpu,
    slow_link,
    cpu_only_torch,
    driver_too_old,
    unsupported_architecture,
)

"""Rules of the family distributed: several GPUs or processes."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.distributed import (
    data_parallel,
    idle_gpus,
)

MODULES: tuple[ModuleType, ...] = (
    idle_gpus,
    data_parallel,
)

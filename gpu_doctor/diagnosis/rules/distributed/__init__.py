"""Rules of the family distributed: several GPUs or processes."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.distributed import (
    unused_gpus,
)

MODULES: tuple[ModuleType, ...] = (unused_gpus,)

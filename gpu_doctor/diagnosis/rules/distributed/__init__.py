"""Rules of the family distributed: several GPUs or processes."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.distributed import (
    communication_bound,
    straggler,
    sync_on_every_microbatch,
    unused_gpus,
)

MODULES: tuple[ModuleType, ...] = (
    unused_gpus,
    straggler,
    sync_on_every_microbatch,
    communication_bound,
)

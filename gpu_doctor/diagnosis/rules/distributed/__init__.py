"""Rules of the family distributed: several GPUs or processes."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.distributed import (
    communication_bound,
    data_parallel,
    idle_gpus,
    straggler,
    sync_on_every_microbatch,
)

MODULES: tuple[ModuleType, ...] = (
    idle_gpus,
    data_parallel,
    straggler,
    sync_on_every_microbatch,
    communication_bound,
)

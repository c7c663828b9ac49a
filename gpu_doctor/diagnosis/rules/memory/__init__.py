"""Rules of the family memory: too much or too little of it is used."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.memory import (
    fragmented_memory,
    host_memory_pressure,
    memory_growth,
    near_out_of_memory,
    needless_accumulation,
    out_of_memory,
    small_batch,
)

MODULES: tuple[ModuleType, ...] = (
    out_of_memory,
    near_out_of_memory,
    fragmented_memory,
    memory_growth,
    host_memory_pressure,
    needless_accumulation,
    small_batch,
)

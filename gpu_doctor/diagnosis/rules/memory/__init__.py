"""Rules of the family memory: memory runs out, grows, is fragmented, or is nearly full."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.memory import (
    host_memory_pressure,
    memory_growth,
    near_out_of_memory,
    out_of_memory,
)

MODULES: tuple[ModuleType, ...] = (
    out_of_memory,
    near_out_of_memory,
    memory_growth,
    host_memory_pressure,
)

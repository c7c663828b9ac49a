"""Rules of the family memory: too much or too little of it is used."""

from types import ModuleType

from gpu_doctor.rules.memory import (
    small_batch,
)

MODULES: tuple[ModuleType, ...] = (small_batch,)

"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.rules.compute import (
    full_precision,
    heavy_evaluation,
)

MODULES: tuple[ModuleType, ...] = (
    full_precision,
    heavy_evaluation,
)

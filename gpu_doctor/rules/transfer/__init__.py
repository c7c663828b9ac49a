"""Rules of the family transfer: copies between host and device."""

from types import ModuleType

from gpu_doctor.rules.transfer import (
    pageable_transfer,
)

MODULES: tuple[ModuleType, ...] = (pageable_transfer,)

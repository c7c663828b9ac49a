"""Rules of the family transfer: copies between host and device."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.transfer import copies

MODULES: tuple[ModuleType, ...] = (copies,)

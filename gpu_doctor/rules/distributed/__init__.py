"""Rules of the family distributed: several GPUs or processes."""

from types import ModuleType

MODULES: tuple[ModuleType, ...] = ()

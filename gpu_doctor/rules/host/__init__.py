"""Rules of the family host: the Python between the launches."""

from types import ModuleType

from gpu_doctor.rules.host import (
    host_sync,
    launch_bound,
    slow_python,
)

MODULES: tuple[ModuleType, ...] = (
    host_sync,
    launch_bound,
    slow_python,
)

"""Rules of the family host: the Python between the launches."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.host import (
    cpu_oversubscription,
    debug_mode_on,
    hidden_sync,
    host_sync,
    launch_bound,
    own_python,
)

MODULES: tuple[ModuleType, ...] = (
    cpu_oversubscription,
    debug_mode_on,
    host_sync,
    hidden_sync,
    launch_bound,
    own_python,
)

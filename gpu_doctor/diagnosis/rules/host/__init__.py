"""Rules of the family host: the host's Python and its launches limit the loop."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.host import (
    cpu_oversubscription,
    debug_mode_on,
    gpu_sync,
    launch_bound,
    own_python,
)

MODULES: tuple[ModuleType, ...] = (
    gpu_sync,
    cpu_oversubscription,
    debug_mode_on,
    launch_bound,
    own_python,
)

"""Rules of the family host: the Python between the launches."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.host import (
    cache_emptied_each_step,
    checkpoint_stall,
    cpu_oversubscription,
    debug_mode_on,
    garbage_collected_each_step,
    gpu_sync,
    launch_bound,
    python_in_forward,
    slow_generator,
    slow_python,
)

MODULES: tuple[ModuleType, ...] = (
    gpu_sync,
    cache_emptied_each_step,
    checkpoint_stall,
    cpu_oversubscription,
    debug_mode_on,
    garbage_collected_each_step,
    launch_bound,
    python_in_forward,
    slow_generator,
    slow_python,
)

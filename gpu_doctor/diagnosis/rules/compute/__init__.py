"""Rules of the family compute: the computing itself could be faster, or is not needed."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.compute import (
    changing_shapes,
    evaluation,
    one_by_one,
    optimizer,
    wasted_work,
    worth_a_trial,
)

MODULES: tuple[ModuleType, ...] = (
    worth_a_trial,
    wasted_work,
    evaluation,
    optimizer,
    one_by_one,
    changing_shapes,
)

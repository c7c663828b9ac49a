"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.compute import (
    changing_shapes,
    evaluation,
    loss_in_a_loop,
    optimizer,
    per_sample_forward,
    wasted_work,
    worth_a_trial,
)

MODULES: tuple[ModuleType, ...] = (
    worth_a_trial,
    wasted_work,
    evaluation,
    optimizer,
    per_sample_forward,
    loss_in_a_loop,
    changing_shapes,
)

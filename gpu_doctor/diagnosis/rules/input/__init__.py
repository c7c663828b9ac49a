"""Rules of the family input: the loop waits for its data."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.input import (
    data_starved,
    epoch_edges,
    iterable_duplicated,
    small_shared_memory,
    too_many_workers,
    workers_cannot_start,
)

MODULES: tuple[ModuleType, ...] = (
    data_starved,
    too_many_workers,
    epoch_edges,
    workers_cannot_start,
    small_shared_memory,
    iterable_duplicated,
)

"""Rules of the family input: the loop waits for its data."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.input import (
    iterable_duplicated,
    loader_without_workers,
    slow_collate,
    slow_epoch_start,
    slow_getitem,
    slow_storage,
    small_shared_memory,
    too_few_workers,
    too_many_workers,
    uneven_batches,
    workers_cannot_start,
    workers_restart_each_epoch,
)

MODULES: tuple[ModuleType, ...] = (
    loader_without_workers,
    too_few_workers,
    too_many_workers,
    uneven_batches,
    slow_getitem,
    slow_collate,
    slow_storage,
    workers_restart_each_epoch,
    slow_epoch_start,
    workers_cannot_start,
    small_shared_memory,
    iterable_duplicated,
)

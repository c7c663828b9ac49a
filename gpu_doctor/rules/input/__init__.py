"""Rules of the family input: the loop waits for its data."""

from types import ModuleType

from gpu_doctor.rules.input import (
    loader_without_workers,
    slow_collate,
    slow_getitem,
    too_few_workers,
    too_many_workers,
    uneven_batches,
    workers_restart_each_epoch,
)

MODULES: tuple[ModuleType, ...] = (
    loader_without_workers,
    too_few_workers,
    too_many_workers,
    uneven_batches,
    slow_getitem,
    slow_collate,
    workers_restart_each_epoch,
)

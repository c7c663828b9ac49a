"""Rules of the family transfer: copies between host and device."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.transfer import (
    blocking_transfer,
    device_round_trips,
    heavy_transfer,
    many_small_transfers,
    pageable_transfer,
)

MODULES: tuple[ModuleType, ...] = (
    pageable_transfer,
    blocking_transfer,
    heavy_transfer,
    many_small_transfers,
    device_round_trips,
)

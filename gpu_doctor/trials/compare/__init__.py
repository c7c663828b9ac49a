"""Compares two runs: the ratio of their speeds with its interval, their losses, their pairs."""

from gpu_doctor.trials.compare.effect import AS_PASTED, BY_SETTINGS, UNMEASURED, Effect, compare
from gpu_doctor.trials.compare.losses import BREAKS

__all__ = [
    "AS_PASTED",
    "BREAKS",
    "BY_SETTINGS",
    "UNMEASURED",
    "Effect",
    "compare",
]

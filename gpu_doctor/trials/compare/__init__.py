"""What two runs say together: their ratio with its interval, their losses, their pairs."""

from gpu_doctor.trials.compare.effect import UNMEASURED, Effect, compare
from gpu_doctor.trials.compare.losses import BREAKS, DIFFERENT

__all__ = [
    "BREAKS",
    "DIFFERENT",
    "UNMEASURED",
    "Effect",
    "batch_scaling",
    "compare",
]

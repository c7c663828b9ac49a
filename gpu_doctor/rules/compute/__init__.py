"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.rules.compute import (
    changing_shapes,
    channels_first_convolutions,
    cudnn_not_tuned,
    emulated_half_precision,
    eval_with_gradients,
    full_precision,
    heavy_evaluation,
    model_on_cpu,
    model_too_small,
    not_compiled,
    tf32_off,
    unaligned_shapes,
    unfused_optimizer,
)

MODULES: tuple[ModuleType, ...] = (
    full_precision,
    heavy_evaluation,
    changing_shapes,
    channels_first_convolutions,
    eval_with_gradients,
    model_on_cpu,
    not_compiled,
    unfused_optimizer,
    tf32_off,
    cudnn_not_tuned,
    emulated_half_precision,
    unaligned_shapes,
    model_too_small,
)

"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.compute import (
    attention_by_hand,
    changing_shapes,
    channels_first_convolutions,
    cudnn_not_tuned,
    emulated_half_precision,
    evaluation,
    full_precision,
    loss_in_a_loop,
    model_on_cpu,
    model_too_small,
    not_compiled,
    optimizer,
    per_sample_forward,
    recompiles,
    slow_attention_kernel,
    tf32_off,
    wasted_work,
)

MODULES: tuple[ModuleType, ...] = (
    full_precision,
    wasted_work,
    evaluation,
    optimizer,
    attention_by_hand,
    slow_attention_kernel,
    per_sample_forward,
    recompiles,
    loss_in_a_loop,
    changing_shapes,
    channels_first_convolutions,
    model_on_cpu,
    not_compiled,
    tf32_off,
    cudnn_not_tuned,
    emulated_half_precision,
    model_too_small,
)

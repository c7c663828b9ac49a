"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.compute import (
    attention_by_hand,
    changing_shapes,
    channels_first_convolutions,
    cudnn_not_tuned,
    dense_embedding_gradients,
    double_precision,
    emulated_half_precision,
    eval_with_gradients,
    full_precision,
    heavy_evaluation,
    loss_in_a_loop,
    model_on_cpu,
    model_too_small,
    not_compiled,
    per_sample_forward,
    redundant_forward,
    tf32_off,
    unaligned_shapes,
    unfused_optimizer,
    unused_gradients,
)

MODULES: tuple[ModuleType, ...] = (
    full_precision,
    double_precision,
    attention_by_hand,
    heavy_evaluation,
    redundant_forward,
    per_sample_forward,
    loss_in_a_loop,
    changing_shapes,
    channels_first_convolutions,
    eval_with_gradients,
    unused_gradients,
    model_on_cpu,
    not_compiled,
    unfused_optimizer,
    dense_embedding_gradients,
    tf32_off,
    cudnn_not_tuned,
    emulated_half_precision,
    unaligned_shapes,
    model_too_small,
)

"""Rules of the family compute: the work itself could be done sooner."""

from types import ModuleType

from gpu_doctor.diagnosis.rules.compute import (
    broadcast_similarity,
    changing_shapes,
    dense_embedding_gradients,
    double_precision,
    eval_with_gradients,
    frozen_recomputed,
    heavy_evaluation,
    loss_by_hand,
    loss_in_a_loop,
    needless_checkpointing,
    per_sample_forward,
    redundant_forward,
    unaligned_shapes,
    unfused_optimizer,
    unused_gradients,
    unused_logits,
    wasted_padding,
    worth_a_trial,
)

MODULES: tuple[ModuleType, ...] = (
    worth_a_trial,
    changing_shapes,
    double_precision,
    wasted_padding,
    frozen_recomputed,
    needless_checkpointing,
    heavy_evaluation,
    redundant_forward,
    per_sample_forward,
    unused_logits,
    loss_by_hand,
    broadcast_similarity,
    loss_in_a_loop,
    eval_with_gradients,
    unused_gradients,
    unfused_optimizer,
    dense_embedding_gradients,
    unaligned_shapes,
)

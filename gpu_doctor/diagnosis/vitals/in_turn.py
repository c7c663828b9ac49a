"""Decides from counted calls and operations whether a step computes item by item."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

FEWEST: Final = 8
"""Fewest samples of a batch, and forwards in its step, to be judged: four tiles of an image are no batch."""
ALL_OF_THEM: Final = 0.9
"""Forwards of a step over its samples: some may be left out, and a last batch is smaller."""
MANY_OPERATIONS: Final = 200
"""A loss of a few terms has some ten operations."""
LOSS_SHARE: Final = 0.10
"""A loss that takes less matters little, however it is made."""
FEW_SHAPES: Final = 2
"""The items of a batch that have more shapes than that differ in length."""


def item_by_item(vitals: Vitals) -> bool:
    """True if the model or the loss is computed one item of a batch at a time."""
    return model_in_turn(vitals) or loss_in_pieces(vitals)


def model_in_turn(vitals: Vitals) -> bool:
    """True if each sample of a batch has its own forward."""
    inputs, samples = vitals.inputs, vitals.samples_per_step
    if inputs is None or samples is None or vitals.loader is None or not vitals.backward_share or not inputs.shape:
        return False
    per_step = inputs.per_step
    if per_step is None or samples < FEWEST or per_step < max(FEWEST, ALL_OF_THEM * min(samples, inputs.most_per_step)):
        return False
    if per_step < inputs.most_per_step and per_step * ALL_OF_THEM > samples:
        return False  # more forwards than samples: a cell that is called for every time step
    batch = round(samples / max(vitals.batches_per_step or 1.0, 1.0))
    return inputs.shapes > FEW_SHAPES or batch not in inputs.shape[:2]  # whole batches: one for each time step


def loss_in_pieces(vitals: Vitals) -> bool:
    """True if the loss takes hundreds of operations, and more operations than there are samples."""
    pieces = vitals.setup.loss_operations or 0
    many = pieces >= max(MANY_OPERATIONS, vitals.samples_per_step or 0.0)
    return many and (vitals.loss_share or 0.0) >= LOSS_SHARE

"""Whether a step computes item by item, as its calls and operations were counted."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

FEWEST: Final = 8
"""Samples of a batch, and forwards in its step, from which on it is told: four tiles of an image are no batch."""
ALL_OF_THEM: Final = 0.9
"""Forwards of a step over its samples: some may be left out, and a last batch is smaller."""
MANY_OPERATIONS: Final = 200
"""A loss of a few terms has some ten operations."""
LOSS_SHARE: Final = 0.10
"""A loss that takes less matters little, however it is made."""
FEW_SHAPES: Final = 2
"""The items of a batch that have more shapes than that differ in length."""


def item_by_item(vitals: Vitals) -> bool:
    """Whether the model or the loss is computed for one item of a batch after the other."""
    return model_in_turn(vitals) or loss_in_pieces(vitals)


def model_in_turn(vitals: Vitals) -> bool:
    """Whether each sample of a batch has a forward of its own."""
    inputs, samples = vitals.inputs, vitals.samples_per_step
    if inputs is None or samples is None or vitals.loader is None or not vitals.backward_share or not inputs.shape:
        return False
    often = inputs.per_step
    if often is None or samples < FEWEST or often < max(FEWEST, ALL_OF_THEM * min(samples, inputs.most_per_step)):
        return False
    if often < inputs.most_per_step and often * ALL_OF_THEM > samples:
        return False  # more forwards than samples: a cell that is called for every time step
    batch = round(samples / max(vitals.batches_per_step or 1.0, 1.0))
    return inputs.shapes > FEW_SHAPES or batch not in inputs.shape[:2]  # whole batches: one for each time step


def loss_in_pieces(vitals: Vitals) -> bool:
    """Whether more operations than samples, and hundreds of them, were made between forward and backward."""
    pieces = vitals.setup.loss_operations or 0
    many = pieces >= max(MANY_OPERATIONS, vitals.samples_per_step or 0.0)
    return many and (vitals.loss_share or 0.0) >= LOSS_SHARE

"""The codes of the phases that the training thread can be in, as the ledger counts them."""

from __future__ import annotations

from typing import Final

DATA_WAIT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, SYNC, EVALUATION, LOSS, NO_GRAD, OTHER = range(10)
"""The first seven stand in the order of `steps.PHASES`. LOSS is the part of `other` between forward and backward,
NO_GRAD that of `forward` in which a model in training mode records no gradients."""

PHASE_COUNT: Final = 10
PHASE_NAMES: Final = (
    *("data_wait", "transfer", "forward", "backward", "optimizer", "sync", "evaluation"),
    *("other", "forward", "other"),
)
"""Code -> the phase's public name."""

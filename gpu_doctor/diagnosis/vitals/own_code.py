"""Shares and lines of the loop's own code: outside the phases of training, and as Python inside them."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LineCost

DISTURBED: Final = 4.0
"""Own code must take this many times gpu_doctor's own time to be distinguished from it: both lie in the same gaps."""


def outside_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, that the loop's own code takes outside the phases and the loss.

    Costly calls are left out, as they have rules of their own, and so is a single event that does not come again. If
    events separate own code from training (see `mixed`), the user's Python in the loss is added.
    """
    share = total(outside_lines(vitals))
    if not mixed(vitals):
        taken = vitals.chores_between_share + vitals.once_share
        share = max(vitals.outside_share - taken, 0.0) + total(_in_the_loss(vitals))
    return min(share, _unexplained_idle_share(vitals)) if vitals.on_gpu else share


def _unexplained_idle_share(vitals: Vitals) -> float:
    """Share in which a GPU may idle that no wait, copy or compiler explains; own code costs no more than that."""
    explained = vitals.exposed_share + vitals.tripped_share + idle.announced_sync_share(vitals)
    explained += idle.recompiling_share(vitals) + idle.behind_copies_share(vitals)
    return max(vitals.gpu_idle_at_most - explained, 0.0)


def outside_lines(vitals: Vitals) -> list[LineCost]:
    """Lines of own code: all lines outside the phases, and lines that run Python between forward and backward."""
    calls = {(line.file, line.line) for line in vitals.chores or ()}
    lines = [line for line in vitals.outside_lines if line.outside_torch or not mixed(vitals)]
    return [line for line in (*lines, *_in_the_loss(vitals)) if (line.file, line.line) not in calls]


def passes_lines(vitals: Vitals) -> list[LineCost]:
    """The user's lines inside computing phases that were sampled in Python, not in an operator of torch."""
    lines = vitals.lines_in("forward", "backward", "optimizer", "evaluation")
    return [line for line in lines if line.outside_torch and not line.in_torch]


def within_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, of own Python inside computing phases and the loss."""
    return passes_share(vitals) + total(_in_the_loss(vitals))


def passes_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, of own Python inside computing phases; 0 with too few stack samples."""
    share = total(passes_lines(vitals))
    return share if vitals.sampled_enough(share) else 0.0


def mixed(vitals: Vitals) -> bool:
    """True if no event separates training from own code: it trains without a module, or without a torch optimizer.

    Only lines that run Python count as own code then.
    """
    updates = bool(vitals.setup.optimizers or vitals.setup.optimizer_facts)
    return bool(vitals.backward_share) and not (vitals.forward_share and updates)


def disturbed(vitals: Vitals, share: float) -> bool:
    """True if a share of the loop is too small to be distinguished from the cost of watching it.

    The time that gpu_doctor measures of itself is in no phase, but watching costs about as much again within the phases
    (`benchmarks/overhead.py`: 0.7 to 1.6 times). If it was not measured, the whole overhead counts.
    """
    taken = vitals.overhead_share if vitals.ours_share is None else vitals.ours_share
    return share < DISTURBED * (taken or 0.0)


def _in_the_loss(vitals: Vitals) -> list[LineCost]:
    """Returns the user's lines between forward and backward that were sampled in Python, not in torch."""
    return [
        line for line in vitals.lines_in("other") if line.before_backward and line.outside_torch and not line.in_torch
    ]

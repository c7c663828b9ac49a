"""What the loop's own code takes: beside loading, forward, backward and optimizer, and as Python inside of them."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LineCost

DISTURBED: Final = 4.0
"""What watching itself costs lies in the same gaps, and cools the caches of a loop as short as that: own code that is
not so many times as long cannot be told from it."""


def outside_share(vitals: Vitals) -> float:
    """Share of the wall-clock that the loop's own code takes outside of every phase and of the loss, 0..1.

    Costly calls are left out (they have rules), and what stood still once.
    """
    share = total(outside_lines(vitals))
    if not mixed(vitals):
        taken = vitals.chores_between_share + vitals.once_share
        share = max(vitals.outside_share - taken, 0.0) + total(_in_the_loss(vitals))
    return min(share, _idle_beside(vitals)) if vitals.on_gpu else share


def _idle_beside(vitals: Vitals) -> float:
    """Share in which a GPU may idle that no wait, copy or compiler explains: behind a full queue own code is hidden."""
    explained = vitals.exposed_share + vitals.tripped_share + idle.announced_sync_share(vitals)
    explained += idle.recompiling_share(vitals) + idle.behind_copies_share(vitals)
    return max(vitals.gpu_idle_at_most - explained, 0.0)


def outside_lines(vitals: Vitals) -> list[LineCost]:
    """The lines of that code: all outside of the phases, and between forward and backward those that run Python."""
    calls = {(one.file, one.line) for one in vitals.chores or ()}
    lines = [one for one in vitals.outside_lines if one.outside_torch or not mixed(vitals)]
    return [one for one in (*lines, *_in_the_loss(vitals)) if (one.file, one.line) not in calls]


def passes_lines(vitals: Vitals) -> list[LineCost]:
    """The user's lines that run Python inside of the phases that compute, while no operator of torch does."""
    lines = vitals.lines_in("forward", "backward", "optimizer", "evaluation")
    return [one for one in lines if one.outside_torch and not one.in_torch]


def within_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, in which own code runs within what counts as computing: passes and loss."""
    return passes_share(vitals) + total(_in_the_loss(vitals))


def passes_share(vitals: Vitals) -> float:
    """Share of the wall-clock that they take, 0..1; 0 where few looks saw it."""
    share = total(passes_lines(vitals))
    return share if vitals.looked_at(share) else 0.0


def mixed(vitals: Vitals) -> bool:
    """Whether the loop trains beside its own code, and no event tells the two apart.

    It computes without a module, or changes its parameters itself. There, only Python is its own.
    """
    updates = bool(vitals.setup.optimizers or vitals.setup.optimizer_facts)
    return bool(vitals.backward_share) and not (vitals.forward_share and updates)


def disturbed(vitals: Vitals, share: float) -> bool:
    """Whether watching took so much of the loop that a share of it cannot be told from that.

    What is known to be ours is in no phase, but about as much again is (`benchmarks/overhead.py`: 0.7 to 1.6 times).
    Where nobody told it apart, all that watching took counts.
    """
    taken = vitals.overhead_share if vitals.ours_share is None else vitals.ours_share
    return share < DISTURBED * (taken or 0.0)


def _in_the_loss(vitals: Vitals) -> list[LineCost]:
    return [one for one in vitals.lines_in("other") if one.before_backward and one.outside_torch and not one.in_torch]

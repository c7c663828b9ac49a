"""What is said before a trial of what is open and cannot be put back."""

from __future__ import annotations

from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.side_effects.open_things import TRANSACTION
from gpu_doctor.trials.used_names import Coded, Reached


def open_before(case: Coded) -> Beforehand:
    """Refuses where the cell can reach something open that cannot be put back."""
    refusals = tuple(
        f"A trial could not put {name} ({type(value).__name__}) back, which was open before the cell and {why}: "
        f"{'commit it first' if why == TRANSACTION else 'close it, or open it in the cell'}."
        for value, name, why in Reached.of(case).closed_to_us
    )
    return Beforehand(refusals)

"""What is said before a trial of what is open and cannot be put back."""

from __future__ import annotations

from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.side_effects.open_things import TRANSACTION
from gpu_doctor.trials.snapshot.walk import Walk
from gpu_doctor.trials.used_names import used_names


def open_before(case: Runner) -> Beforehand:
    """Refuses where the cell can reach something open that cannot be put back."""
    walk, names = Walk(), used_names(case)
    space = case.namespace
    reached = space if names is None else {name: space[name] for name in names if name in space}
    walk.over([reached], [] if isinstance(case.made_of, str) else [case.made_of])
    refusals = tuple(
        f"A trial could not put {name} ({type(value).__name__}) back, which was open before the cell and {why}: "
        f"{'commit it first' if why == TRANSACTION else 'close it, or open it in the cell'}."
        for value, name, why in walk.closed_to_us
    )
    return Beforehand(refusals)

"""What is said before a trial of iterators from before the cell: which each side gets anew, which refuse a trial."""

from __future__ import annotations

from gpu_doctor.trials.anew import Anew
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.used_names import Coded


def iterators(case: Coded) -> Beforehand:
    """Names what a trial would use up, and what begins at the start of its data in it."""
    found = Anew.of(case)
    if found.stuck:  # no trial begins: what its sides would get is no promise
        return Beforehand(tuple(dict.fromkeys(found.stuck.values())))
    notes = (
        f"`{name}` is made anew for each side of a trial ({one.line}): it begins at the start of the data, and yours "
        "stays where it is."
        for one in found.given
        if one.line
        for name in one.names[:1]
    )
    return Beforehand(notes=tuple(notes))

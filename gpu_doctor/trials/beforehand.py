"""What is to be known before a trial begins: why it is refused, or what it cannot see or put back.

Nothing is run, copied or changed here. Whoever starts trials asks first; the panel shows the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpu_doctor.trials.kept_state import kept_state
from gpu_doctor.trials.reaching_out import reaching_out
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand as Beforehand
from gpu_doctor.trials.side_effects.begun_threads import earlier_pools
from gpu_doctor.trials.side_effects.iterators import iterators
from gpu_doctor.trials.side_effects.open_before import open_before
from gpu_doctor.trials.side_effects.ranks import ranks
from gpu_doctor.trials.silenced import silenced
from gpu_doctor.trials.snapshot.unrestored import unrestored

CHECKS: Final[tuple[Callable[[Runner], Beforehand], ...]] = (
    *(ranks, iterators, earlier_pools, open_before, silenced, reaching_out, unrestored),
)
"""Each looks at one kind of thing that a cell may do."""
_ASKED: Final[Mapping[Callable[[Runner], Beforehand], str]] = {
    kept_state: "what of your variables a trial would put back",
    ranks: "whether other processes would wait for this one in a trial",
    iterators: "whether a trial would use up an iterator from before this cell",
    earlier_pools: "whether your cell gives work to a thread pool from before this cell",
    open_before: "whether your cell writes to files that are open from before this cell",
    silenced: "which experiment trackers your cell reports to",
    unrestored: "what your cell changes of libraries and of the process",
    reaching_out: "whether your cell sends requests or starts processes",
}


def beforehand(case: Runner) -> Beforehand:
    """What the checks have to say of a case as things stand; what state there is, a trial measures itself."""
    return _joined(_said_by(check, case) for check in CHECKS)


def everything(case: Runner) -> Beforehand:
    """What the checks have to say, and what of the state would be kept and come back."""
    return _joined(_said_by(check, case) for check in (kept_state, *CHECKS))


def _said_by(check: Callable[[Runner], Beforehand], case: Runner) -> Beforehand:
    """What one check has to say; one that fails, whatever object it met, keeps neither the others nor a trial back."""
    try:
        return check(case)
    except Exception as error:
        asked = _ASKED.get(check, "what else a trial would do")
        return Beforehand(notes=(f"It is not known {asked}: looking for it failed ({type(error).__name__}).",))


def _joined(said: Iterable[Beforehand]) -> Beforehand:
    found = list(said)
    return Beforehand(
        tuple(dict.fromkeys(one for each in found for one in each.refusals)),
        tuple(dict.fromkeys(one for each in found for one in each.notes)),
        tuple(dict.fromkeys(one for each in found for one in each.lost)),
    )

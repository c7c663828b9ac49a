"""Checks a case before a trial: why it is refused, or what the trial cannot see or restore.

Nothing is run, copied or changed here. Every trial makes these checks first; the panel shows the same sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.trials.kept_state import kept_state
from gpu_doctor.trials.large_data import large_data
from gpu_doctor.trials.reaching_out import reaching_out
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand as Beforehand
from gpu_doctor.trials.side_effects.begun_threads import earlier_pools
from gpu_doctor.trials.side_effects.iterators import iterators
from gpu_doctor.trials.side_effects.open_before import open_before
from gpu_doctor.trials.side_effects.ranks import ranks
from gpu_doctor.trials.silenced import silenced
from gpu_doctor.trials.snapshot.unrestored import unrestored
from gpu_doctor.trials.used_names import walked_once

CHECKS: Final[tuple[Callable[[Runner], Beforehand], ...]] = (
    *(ranks, iterators, earlier_pools, open_before, silenced, reaching_out, large_data, unrestored),
)
"""The checks, one for each kind of thing that a cell may do."""
_SOUGHT: Final[Mapping[Callable[[Runner], Beforehand], str]] = {
    kept_state: "what of your variables a trial would put back",
    ranks: "whether other processes would wait for this one in a trial",
    iterators: "whether a trial would use up an iterator from before this cell",
    earlier_pools: "whether your cell gives work to a thread pool from before this cell",
    open_before: "whether your cell writes to files that are open from before this cell",
    silenced: "which experiment trackers your cell reports to",
    unrestored: "what your cell changes of libraries and of the process",
    reaching_out: "whether your cell starts processes or uses the network",
    large_data: "whether your cell changes data that a trial does not copy",
}


def beforehand(case: Runner) -> Beforehand:
    """Runs all checks but the size of the state, which a trial measures itself."""
    return _joined(CHECKS, case)


def everything(case: Runner) -> Beforehand:
    """Runs all checks, the size of the state included."""
    return _joined((kept_state, *CHECKS), case)


def _said_by(check: Callable[[Runner], Beforehand], case: Runner) -> Beforehand:
    """Runs one check; an error in it refuses the trial, which was not shown to be harmless."""
    try:
        return check(case)
    except Exception as error:
        sought = _SOUGHT.get(check, "what else a trial would do")
        return Beforehand(
            (
                f"gpu_doctor could not find out {sought} ({formatting.raised(error)}), so no trial begins: please "
                "report this fault of gpu_doctor.",
            )
        )


def _joined(checks: Iterable[Callable[[Runner], Beforehand]], case: Runner) -> Beforehand:
    with walked_once():
        every = [_said_by(check, case) for check in checks]
    return Beforehand(
        tuple(dict.fromkeys(refusal for each in every for refusal in each.refusals)),
        tuple(dict.fromkeys(note for each in every for note in each.notes)),
        tuple(dict.fromkeys(loss for each in every for loss in each.lost)),
        {name: sentence for each in every for name, sentence in each.asks.items()},
    )

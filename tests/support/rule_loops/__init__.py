"""Every cause's loops, in one list: `LOOPS[cause]`, and the recording of its plain sick loop, `sick_recording(cause)`.

One module per family of rules, as in `gpu_doctor/diagnosis/rules/`. All of them are recordings: none ran on a GPU.
"""

from __future__ import annotations

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.recording import Recording
from tests.support.recordings import Loop
from tests.support.rule_loops import compute, distributed, hardware, host, input, memory, transfer
from tests.support.rule_loops.form import CauseLoops, Run

FAMILIES = {
    module.__name__.rpartition(".")[2]: module.CAUSES
    for module in (input, transfer, host, compute, memory, hardware, distributed)
}
LOOPS: dict[str, CauseLoops] = {one.cause: one for causes in FAMILIES.values() for one in causes}


def recordings(run: Run) -> tuple[Recording, ...]:
    """Returns the recordings of a row: the one to diagnose, then other runs of the same loop."""
    runs = run if isinstance(run, tuple) else (run,)
    return tuple(one.recording() if isinstance(one, Loop) else one for one in runs)


def diagnosed(run: Run) -> Diagnosis:
    """Returns the diagnosis of a row."""
    first, *others = recordings(run)
    return diagnose(first, others)


def sick_recording(cause: str) -> Recording:
    """Returns the recording of a cause's plain sick loop."""
    return recordings(next(iter(LOOPS[cause].sick.values())).run)[0]

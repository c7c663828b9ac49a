"""Refuses a cell that would write past a trial's scratch folder, before anything runs."""

from __future__ import annotations

from gpu_doctor.cell import full_names_called
from gpu_doctor.trials.reaching_out import sources
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.side_effects.open_files import is_written_map
from gpu_doctor.trials.side_effects.opened_in_c import WRITERS, why_refused
from gpu_doctor.trials.side_effects.trackers import reporter_of
from gpu_doctor.trials.used_names import Reached


def open_before(case: Runner) -> Beforehand:
    """Refuses a cell that can reach an open, writable file, or that calls a function that writes files in C."""
    said = [
        f'`{name}` is mapped so that the cell could change its file: map it with mode="c".'
        if is_written_map(value)
        else f"`{name}` is open. Close it, or open it in this cell."
        for value, name in Reached.of(case).writable
        if not reporter_of(value)  # experiment trackers are muted
    ]
    texts = [(source, namespace) for _, source, namespace in sources(case)]
    called = {_ends(name) for source, namespace in texts for name in full_names_called(source, namespace)}
    in_c = [full for full in WRITERS if _ends(full) in called]
    return Beforehand((*dict.fromkeys(said), *([why_refused(in_c)] if in_c else [])))


def _ends(full: str) -> tuple[str, str]:
    """Returns package and function name; the modules between them may vary."""
    return full.partition(".")[0], full.rpartition(".")[2]

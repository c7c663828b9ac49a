"""What was open before the cell, and could be written to in it, refuses a trial: that would reach the user's file."""

from __future__ import annotations

from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.side_effects.open_files import is_written_map
from gpu_doctor.trials.side_effects.trackers import reporter_of
from gpu_doctor.trials.used_names import Coded, Reached


def open_before(case: Coded) -> Beforehand:
    """Refuses where the cell can reach something open that it could write to, or that cannot be put back."""
    said = [
        f'`{name}` is mapped so that the cell could change its file: map it with mode="c".'
        if is_written_map(value)
        else f"`{name}` is open. Close it, or open it in this cell."
        for value, name in Reached.of(case).writable
        if not reporter_of(value)  # an experiment tracker is mute
    ]
    return Beforehand(tuple(dict.fromkeys(said)))

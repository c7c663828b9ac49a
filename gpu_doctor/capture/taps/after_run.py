"""Times, when the run is over, how fast this machine runs Python.

On the training thread, when nothing of ours stands in torch any more.
"""

from __future__ import annotations

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import python_cost
from gpu_doctor.recording import Speeds


def time_what_ran(recorder: Recorder) -> None:
    """Lets the recorder of an ended run know the figure; if it cannot be timed, a note says so."""
    try:
        recorder.facts["speeds"] = Speeds(**python_cost.timed(recorder.facts))
    except Exception as error:
        recorder.note(f"The pace of Python could not be timed: {error}")

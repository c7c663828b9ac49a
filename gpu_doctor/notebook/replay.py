"""`gpu_doctor.replay`: shows a recording as its run was shown; outside a notebook it needs only numpy."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any, Final

from gpu_doctor import report
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording, load

SPEED: Final = 20.0


def replay(recording: Recording | str | Path, speed: float = SPEED) -> None:
    """Replays a recording in the live panel: the plots grow, and the verdict appears and changes with the steps.

    Nothing is run, so neither torch nor a GPU is needed. At the end, or after Stop, the panel shows the diagnosis of
    the whole recording. Knobs show forecasts, but trials need the loop itself. Sums that a recording has only for its
    whole run, such as the cost of fetching, are scaled to the time played until then. Outside a notebook the diagnosis
    is printed instead.

    Args:
        recording: recording, or path of a file that `recording.save()` or `%%gpudoctor --save` wrote.
        speed: speed of the replay as a multiple of the run's own.

    Raises:
        RecordingError: The file does not exist or is not a recording.
        TypeError: `recording` is neither a recording nor a path, or the speed is not a number.
        ValueError: The speed is not above 0.

    Example:
        >>> import gpu_doctor
        >>> gpu_doctor.replay("notebooks/recordings/images-on-a-cpu.npz", speed=20)  # in a notebook: the panel
        gpu_doctor · ...
        The loop waits for data 85 % of the time: ...
        ...
    """
    pace, played = _pace(speed), _loaded(recording)
    shell = _notebook()
    if shell is None:
        sys.stdout.write(f"{report.text(report.Reported(diagnose(played), (played,)))}\n")
        return
    from gpu_doctor.notebook.replaying import Replaying

    Replaying(shell, played, pace).run()


def _loaded(recording: Any) -> Recording:
    if isinstance(recording, Recording):
        return recording
    if not isinstance(recording, (str, os.PathLike)):
        raise TypeError(
            f"replay() takes a recording, or the path of a file that recording.save() wrote, not {recording!r:.60}."
        )
    return load(Path(recording).expanduser())


def _pace(speed: Any) -> float:
    message = f"speed is a multiple of the run's own speed, a number above 0 such as 20, not {speed!r:.60}."
    if isinstance(speed, bool) or not isinstance(speed, (int, float)):
        raise TypeError(message)
    if not (speed > 0 and math.isfinite(speed)):
        raise ValueError(message)
    return float(speed)


def _notebook() -> Any:
    """Returns the shell of the notebook that this runs in, or None outside a notebook."""
    loaded: Any = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    return shell if hasattr(shell, "kernel") else None

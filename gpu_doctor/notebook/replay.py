"""`gpu_doctor.replay`: a recording, shown as its run was; needs numpy alone where there is no notebook."""

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
    """Shows the live panel from a recording as it was: the plots grow, the verdict comes and changes with the steps.

    Nothing is run, so neither torch nor a GPU is needed. At its end, or once it is stopped, the panel has the diagnosis
    of the whole recording; knobs answer with forecasts, trials need the loop itself. Sums that a recording has only for
    its whole run, such as what fetching cost, stand in proportion until then. Outside of a notebook the diagnosis is
    printed instead.

    Args:
        recording: the recording, or the path of a file that `recording.save()` or `%%gpudoctor --save` wrote.
        speed: how many times as fast as the run was.

    Raises:
        RecordingError: if there is no file, or it is not a recording.
        TypeError: if it is neither a recording nor a path, or the speed is no number.
        ValueError: if the speed is not above 0.

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
    said = f"speed is how many times as fast as the run was, a number above 0 such as 20, not {speed!r:.60}."
    if isinstance(speed, bool) or not isinstance(speed, (int, float)):
        raise TypeError(said)
    if not (speed > 0 and math.isfinite(speed)):
        raise ValueError(said)
    return float(speed)


def _notebook() -> Any:
    """The shell of the notebook that this is called in; None elsewhere."""
    loaded: Any = sys.modules.get("IPython")
    shell = loaded.get_ipython() if loaded is not None else None
    return shell if hasattr(shell, "kernel") else None

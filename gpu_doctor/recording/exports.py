"""Exports a recording for other tools: as a pandas table, and as event files for TensorBoard."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpu_doctor.recording.steps import PHASES, STEP_COLUMNS, Column, Steps

if TYPE_CHECKING:
    import pandas as pd


def table(steps: Steps) -> pd.DataFrame:
    """Returns the steps as a pandas table, indexed by the number of each row's last step.

    Raises:
        ImportError: If pandas is not installed; the message says how to install it.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise _missing("pandas", error) from None
    columns = {name: getattr(steps, name) for name in STEP_COLUMNS}
    return pd.DataFrame(columns, index=pd.Index(_numbers(steps), name="step"))


def write_events(
    logdir: str | Path,
    steps: Steps,
    readings: Iterable[tuple[str, Column, Column]],
    losses: tuple[Column, Column],
    started_at: float,
    text: str | None,
) -> Path:
    """Writes an event file for TensorBoard with TensorBoard's own writer; torch is not needed.

    Args:
        logdir: Folder, created if it is missing; TensorBoard shows each folder as a run.
        steps: Steps, from which milliseconds a step (in all and by phase) and samples a second are drawn.
        readings: Name, times in seconds after the run began, and values of each metric, such as `gpu_util_pct`. A
            reading is drawn at the step that ran at its time.
        losses: Step numbers, from 0, and values of the recorded losses.
        started_at: Unix time at which the run began.
        text: Text shown under *Text*, such as a diagnosis; None for no text.

    Returns:
        The folder.

    Raises:
        ImportError: If tensorboard is not installed; the message says how to install it.
        OSError: If the folder cannot be written to.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise _missing("tensorboard", error) from None
    folder = Path(logdir)
    folder.mkdir(parents=True, exist_ok=True)  # the writer's thread would only print that it cannot write
    writer = EventFileWriter(str(folder))

    def add(summary: Any, step: int, time_s: float) -> None:
        writer.add_event(Event(wall_time=started_at + time_s, step=step, summary=summary))

    numbers, ends_s = _numbers(steps), steps.start_s + steps.wall_s
    try:
        for tag, values in _scalars(steps).items():
            for number, end_s, value in zip(numbers, ends_s, values, strict=True):
                if np.isfinite(value):  # NaN = not measured
                    add(scalar_pb(tag, value), int(number), end_s)
        for name, times_s, values in readings:
            for time_s, value in zip(times_s, values, strict=True):
                if np.isfinite(value):
                    add(scalar_pb(f"machine/{name}", value), _step_at(time_s, numbers, ends_s), time_s)
        for before, value in zip(*losses, strict=True):
            if np.isfinite(value):
                add(scalar_pb("train/loss", value), int(before) + 1, _end_of(before + 1, numbers, ends_s))
        if text is not None:
            add(text_pb("gpu_doctor/diagnosis", _verbatim(text)), int(numbers[-1]) if len(numbers) else 0, 0.0)
    finally:
        writer.close()
    return folder


def _scalars(steps: Steps) -> dict[str, Column]:
    """Returns the curves by their tags, a value for each row: milliseconds a step, and samples a second."""
    count, wall_s = np.where(steps.count > 0, steps.count, np.nan), np.where(steps.wall_s > 0, steps.wall_s, np.nan)
    found = {"gpu_doctor/step_ms": 1e3 * steps.wall_s / count, "gpu_doctor/samples_per_s": steps.samples / wall_s}
    found |= {f"gpu_doctor/{phase}_ms": 1e3 * getattr(steps, f"{phase}_s") / count for phase in PHASES}
    return found


def _numbers(steps: Steps) -> npt.NDArray[np.int64]:
    """Returns the number of each row's last step, from 1: in long runs a row covers several steps."""
    numbers: npt.NDArray[np.int64] = np.cumsum(steps.count).astype(np.int64)
    return numbers


def _step_at(time_s: float, numbers: npt.NDArray[np.int64], ends_s: Column) -> int:
    """Returns the number of the step that ran at a time; the last step after the loop's end, 0 without steps."""
    if not len(numbers):
        return 0
    return int(numbers[min(int(np.searchsorted(ends_s, time_s)), len(numbers) - 1)])


def _end_of(number: float, numbers: npt.NDArray[np.int64], ends_s: Column) -> float:
    """Returns the end of the row that contains a step, in seconds after the run began."""
    if not len(numbers):
        return 0.0
    return float(ends_s[min(int(np.searchsorted(numbers, number)), len(numbers) - 1)])


def _verbatim(text: str) -> str:
    """Indents a text so that TensorBoard's Markdown shows it unchanged."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _missing(package: str, error: ImportError) -> ImportError:
    """Returns the error for a missing package, with the command that installs it."""
    return ImportError(f"{error}: pip install 'jupyter-gpu-doctor[{package}]'", name=package)

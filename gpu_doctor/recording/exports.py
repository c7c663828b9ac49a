"""A recording in the form that other tools read: a pandas table, and TensorBoard's event files."""

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
    """Returns the steps as a pandas table, a row each, indexed by the number of the row's last step.

    Raises:
        ImportError: if pandas is not installed; the message says how to install it.
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
    """Writes an event file for TensorBoard, by TensorBoard's own writer; torch is not needed.

    Args:
        logdir: the folder, created where it is missing; TensorBoard shows each folder as a run.
        steps: what is drawn by step: milliseconds a step, in all and by phase, and samples a second.
        readings: name, seconds after the run began, and value of what was read by time, such as `gpu_util_pct`. A
            reading stands at the step that ran then.
        losses: steps, counted from 0, and values of the losses that were recorded.
        started_at: Unix time at which the run began.
        text: shown under *Text*, such as a diagnosis.

    Returns:
        The folder.

    Raises:
        ImportError: if tensorboard is not installed; the message says how to install it.
        OSError: if the folder cannot be written to.
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
    """Tag -> values by row: milliseconds a step, and samples a second."""
    count, wall_s = np.where(steps.count > 0, steps.count, np.nan), np.where(steps.wall_s > 0, steps.wall_s, np.nan)
    found = {"gpu_doctor/step_ms": 1e3 * steps.wall_s / count, "gpu_doctor/samples_per_s": steps.samples / wall_s}
    found |= {f"gpu_doctor/{phase}_ms": 1e3 * getattr(steps, f"{phase}_s") / count for phase in PHASES}
    return found


def _numbers(steps: Steps) -> npt.NDArray[np.int64]:
    """The number of each row's last step, from 1: in long runs a row stands for several."""
    numbers: npt.NDArray[np.int64] = np.cumsum(steps.count).astype(np.int64)
    return numbers


def _step_at(time_s: float, numbers: npt.NDArray[np.int64], ends_s: Column) -> int:
    """The step that ran at a time: the last one where the loop had ended, 0 without steps."""
    if not len(numbers):
        return 0
    return int(numbers[min(int(np.searchsorted(ends_s, time_s)), len(numbers) - 1)])


def _end_of(number: float, numbers: npt.NDArray[np.int64], ends_s: Column) -> float:
    """Seconds after the run began at which the row ended that holds a step."""
    if not len(numbers):
        return 0.0
    return float(ends_s[min(int(np.searchsorted(numbers, number)), len(numbers) - 1)])


def _verbatim(text: str) -> str:
    """Text that TensorBoard's Markdown shows as it is: an indented block."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def _missing(package: str, error: ImportError) -> ImportError:
    return ImportError(f"{error}: pip install 'jupyter-gpu-doctor[{package}]'", name=package)

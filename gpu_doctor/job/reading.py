"""Reads what is left of a run: the recording of a process, or the folder of a job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psutil

from gpu_doctor.job.folder import MARKS, RECORDINGS, Mark
from gpu_doctor.job.job import Job, Missing
from gpu_doctor.job.rank import Rank, rank_of
from gpu_doctor.recording import RecordingError, here
from gpu_doctor.recording import load as load_recording

MOST_RANKS: Final = 4096
"""Files of a folder that are read; of each rank some numbers and three columns stay in memory."""


def load(path: str | os.PathLike[str]) -> Any:
    """Reads a recording that `Recording.save` wrote, or a folder in which the ranks of a job left theirs.

    Returns:
        The `Recording`; of a folder the `Job`, whose ranks are shown side by side.

    Raises:
        RecordingError: if a file is missing, truncated, not a recording, or from a newer schema; the message names it.
        TypeError: if it is no path.

    Example:
        >>> import gpu_doctor
        >>> recording = gpu_doctor.load("notebooks/recordings/images-on-a-cpu.npz")
        >>> round(recording.duration_s, 1)
        27.9
    """
    if isinstance(path, (str, os.PathLike)) and Path(path).is_dir():
        return load_job(path)
    return load_recording(path)  # type: ignore[arg-type]


def load_job(folder: str | os.PathLike[str]) -> Job:
    """Reads the folder of a job.

    Raises:
        RecordingError: if no rank left anything there, or a file is damaged; the message names it.
    """
    where = Path(folder)
    paths, marks = _files(where, RECORDINGS), [Mark.read(path) for path in _files(where, MARKS)]
    if not paths and not marks:
        raise RecordingError(
            f"No rank has left a recording in {where}: run each with gpudoctor run --save {where}, or under "
            "gpu_doctor.watch(folder=...)."
        )
    ranks, notes = _of_one_job([_rank(path) for path in paths])
    # A rank that does not know of the others says that it is one of one.
    size = max((one.world_size for one in ranks), default=0)
    known = [one.rank + 1 for one in marks if one.rank is not None]
    size = max(size, *known, *(one.number + 1 for one in ranks), 1)
    missing = _missing(marks, {one.number for one in ranks}, size)
    return Job(tuple(sorted(ranks, key=lambda one: one.number)), size, missing, str(where), notes)


def _files(folder: Path, pattern: str) -> list[Path]:
    """The folder's files of a kind, by name.

    Raises:
        RecordingError: if there are more than any job leaves.
    """
    found = list(islice(folder.glob(pattern), MOST_RANKS + 1))
    if len(found) > MOST_RANKS:
        raise RecordingError(
            f"{folder} holds more than {MOST_RANKS} files of ranks: give each job a folder of its own."
        )
    return sorted(found)


def _rank(path: Path) -> Rank:
    number = path.stem.removeprefix("rank-")
    if not (number.isascii() and number.isdecimal() and len(number) <= 6):
        raise RecordingError(f"{path} is no rank's recording: their names are like rank-00003.npz.")
    return rank_of(load_recording(path), path, int(number))


def _of_one_job(ranks: Sequence[Rank]) -> tuple[list[Rank], tuple[str, ...]]:
    """Leaves out what an earlier job left in the folder: runs that had ended before the newest one began."""
    newest = max((one.started_at for one in ranks), default=0.0)
    earlier = [one for one in ranks if one.started_at + one.duration_s < newest]
    notes = tuple(f"{one.path.name} is left out: its run had ended before the last rank's began." for one in earlier)
    return [one for one in ranks if one not in earlier], notes


def _missing(marks: Sequence[Mark], there: set[int], size: int) -> tuple[Missing, ...]:
    """Ranks without a recording, and processes that began without knowing their rank."""
    begun = {one.rank: one for one in marks if one.rank is not None}
    unknown = [one for one in marks if one.rank is None]
    absent = [number for number in range(min(size, MOST_RANKS)) if number not in there]
    if len(unknown) == 1 and len(absent) == 1 and absent[0] not in begun:
        begun[absent[0]] = unknown.pop()
    found = [_as_missing(number, begun.get(number)) for number in absent if number in begun or not unknown]
    return (*found, *(_as_missing(None, one) for one in unknown))


def _as_missing(number: int | None, mark: Mark | None) -> Missing:
    if mark is None:
        return Missing(number)
    runs = mark.host == here() and 0 < mark.pid < 1 << 31 and psutil.pid_exists(mark.pid)
    return Missing(number, mark.started_at, mark.host, runs)

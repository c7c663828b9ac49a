"""Loads the saved result of a run: the recording of a process, or the folder of a job."""

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
"""Largest number of files in a job's folder. Some numbers and three columns of each rank stay in memory."""


def load(path: str | os.PathLike[str]) -> Any:
    """Loads a recording that `Recording.save` wrote, or the folder in which the ranks of a job saved theirs.

    Args:
        path: path of the file or folder.

    Returns:
        The `Recording` of a file, or the `Job` of a folder, which compares its ranks.

    Raises:
        RecordingError: A file is missing, truncated, not a recording, or from a newer schema; the message names it.
        TypeError: `path` is not a path.

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
    """Loads the folder of a job.

    Raises:
        RecordingError: No rank left a file there, or a file is damaged; the message names it.
    """
    where = Path(folder)
    paths, marks = _files(where, RECORDINGS), [Mark.read(path) for path in _files(where, MARKS)]
    if not paths and not marks:
        raise RecordingError(
            f"No rank has left a recording in {where}: run each with gpudoctor run --save {where}, or under "
            "gpu_doctor.watch(folder=...)."
        )
    ranks, notes = _of_one_job([_rank(path) for path in paths])
    # A rank that does not know the others has a world size of 1.
    size = max((rank.world_size for rank in ranks), default=0)
    known = [mark.rank + 1 for mark in marks if mark.rank is not None]
    size = max(size, *known, *(rank.number + 1 for rank in ranks), 1)
    missing = _missing(marks, {rank.number for rank in ranks}, size)
    return Job(tuple(sorted(ranks, key=lambda rank: rank.number)), size, missing, str(where), notes)


def _files(folder: Path, pattern: str) -> list[Path]:
    """Returns the files of a folder that match a pattern, sorted by name.

    Raises:
        RecordingError: There are more than MOST_RANKS.
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
        raise RecordingError(f"{path} is not the recording of a rank: those have names like rank-00003.npz.")
    return rank_of(load_recording(path), path, int(number))


def _of_one_job(ranks: Sequence[Rank]) -> tuple[list[Rank], tuple[str, ...]]:
    """Drops the ranks of an earlier job in the same folder, whose runs had ended before the newest run began.

    Returns:
        The remaining ranks, and a note for each dropped one.
    """
    newest = max((rank.started_at for rank in ranks), default=0.0)
    earlier = [rank for rank in ranks if rank.started_at + rank.duration_s < newest]
    notes = tuple(f"{rank.path.name} is left out: its run had ended before the last rank's began." for rank in earlier)
    return [rank for rank in ranks if rank not in earlier], notes


def _missing(marks: Sequence[Mark], there: set[int], size: int) -> tuple[Missing, ...]:
    """Returns the ranks without a recording, and the processes that began without knowing their rank.

    Args:
        marks: marks in the folder.
        there: ranks with a recording.
        size: number of ranks of the job.
    """
    begun = {mark.rank: mark for mark in marks if mark.rank is not None}
    unknown = [mark for mark in marks if mark.rank is None]
    absent = [number for number in range(min(size, MOST_RANKS)) if number not in there]
    if len(unknown) == 1 and len(absent) == 1 and absent[0] not in begun:
        begun[absent[0]] = unknown.pop()
    found = [_as_missing(number, begun.get(number)) for number in absent if number in begun or not unknown]
    return (*found, *(_as_missing(None, mark) for mark in unknown))


def _as_missing(number: int | None, mark: Mark | None) -> Missing:
    if mark is None:
        return Missing(number)
    runs = mark.host == here() and 0 < mark.pid < 1 << 31 and psutil.pid_exists(mark.pid)
    return Missing(number, mark.started_at, mark.host, runs)

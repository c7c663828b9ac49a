"""The folder that the ranks of a job share: each writes a mark when it begins, and its recording when it ends.

Rank and number of ranks come from the process group in the recording, else from the environment variables that a
launcher sets. The ranks do not communicate: a folder that all of them can write to is enough.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpu_doctor.recording import Recording, RecordingError, check_place, here
from gpu_doctor.recording.setup import World

RECORDINGS: Final = "rank-*.npz"
MARKS: Final = "*.begun"
MOST_MARK_BYTES: Final = 4096


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Returns rank and number of ranks as torchrun, Accelerate and Ray Train set them, or None if they are not set."""
    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or not int(rank) < int(size):
        return None
    return int(rank), int(size)


@dataclass(frozen=True)
class Mark:
    """A file that marks a process which began to record; it is deleted when the process ends."""

    rank: int | None
    """Rank of the process; None if it was unknown at the start, as under `torch.multiprocessing.spawn`."""
    host: str
    pid: int
    started_at: float
    """Start of the recording, as Unix time in seconds."""

    @classmethod
    def read(cls, path: Path) -> Mark:
        """Reads a mark from its file.

        Raises:
            RecordingError: The file is damaged.
        """
        try:
            with path.open("rb") as file:
                plain: Any = json.loads(file.read(MOST_MARK_BYTES))
            rank = plain["rank"]
            return cls(
                None if rank is None else int(rank), str(plain["host"]), int(plain["pid"]), float(plain["started_at"])
            )
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise RecordingError(
                f"{path} is not a valid mark of a rank ({type(error).__name__}): delete it."
            ) from error


class Place:
    """The files of one rank in the folder of its job."""

    def __init__(self, folder: str | Path, started_as: tuple[int, int] | None = None) -> None:
        """Prepares the files without writing anything before `begin`.

        Args:
            folder: folder of the job.
            started_as: rank of this process and number of ranks, used if neither the environment nor a process group
                has them.
        """
        self.folder, self._started_as = Path(folder).absolute(), started_as  # the program may change its directory
        self._mark: Path | None = None

    def begin(self) -> None:
        """Writes the mark of this rank and deletes the recording that an earlier run of the same rank left.

        Raises:
            OSError: The folder cannot be made or written to; the text is one sentence that says why.
        """
        known = from_environment()
        rank = known[0] if known is not None else None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(f"{self.folder} is a file: name a folder for the ranks' recordings.") from None
        check_place(_recording_of(self.folder, rank or 0))
        if rank is not None:
            _recording_of(self.folder, rank).unlink(missing_ok=True)
        stem = f"process-{uuid.uuid4().hex}" if rank is None else f"rank-{rank:05d}"
        self._mark = self.folder / f"{stem}.begun"
        self._mark.write_text(json.dumps(asdict(Mark(rank, here(), os.getpid(), time.time()))), encoding="utf-8")

    def end(self, recording: Recording) -> Recording:
        """Saves the recording, then deletes the mark; returns the recording with its rank.

        If saving fails, the returned recording has a note that says so.
        """
        ranked = _ranked(recording, from_environment() or self._started_as)
        number = ranked.setup.world.rank if ranked.setup.world is not None else 0
        try:
            ranked.save(_recording_of(self.folder, number))
            if self._mark is not None:
                self._mark.unlink(missing_ok=True)
        except OSError as error:
            note = f"The recording of rank {number} could not be saved in {self.folder}: {error.strerror or error}."
            return replace(ranked, notes=(*ranked.notes, note))
        return ranked


def _recording_of(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.npz"


def _ranked(recording: Recording, known: tuple[int, int] | None) -> Recording:
    """Returns the recording with the rank that the launcher gave, if the recording has no process group."""
    world = recording.setup.world or World()
    if world.world_size > 1 or known is None:
        return recording
    rank, size = known
    return replace(recording, setup=replace(recording.setup, world=replace(world, rank=rank, world_size=size)))

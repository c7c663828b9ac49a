"""The folder that the ranks of a job share: each leaves a mark when it begins, and its recording when it ends.

Rank and number of ranks are those of the process group as the recording has them, else those that a launcher put into
the environment. The ranks say nothing to each other: a folder that all of them can write to is enough.
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
    """Rank and number of ranks, as torchrun, Accelerate and Ray Train set them; None where they do not stand there."""
    rank, size = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (rank.isdecimal() and size.isdecimal()) or not int(rank) < int(size):
        return None
    return int(rank), int(size)


@dataclass(frozen=True)
class Mark:
    """A process that began to record; its file is deleted when it has ended."""

    rank: int | None
    """None: the process did not know it when it began, as under `torch.multiprocessing.spawn`."""
    host: str
    pid: int
    started_at: float
    """Unix time."""

    @classmethod
    def read(cls, path: Path) -> Mark:
        """Reads the file of a mark.

        Raises:
            RecordingError: if it is damaged.
        """
        try:
            with path.open("rb") as file:
                plain: Any = json.loads(file.read(MOST_MARK_BYTES))
            rank = plain["rank"]
            return cls(
                None if rank is None else int(rank), str(plain["host"]), int(plain["pid"]), float(plain["started_at"])
            )
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
            raise RecordingError(f"{path} is no mark of a rank ({type(error).__name__}): delete it.") from error


class Place:
    """One rank's place in the folder."""

    def __init__(self, folder: str | Path, started_as: tuple[int, int] | None = None) -> None:
        """Nothing is written before `begin`.

        Args:
            folder: of the job.
            started_as: number of this process and how many there are, for ranks of which neither the environment nor a
                process group says them.
        """
        self.folder, self._started_as = Path(folder).absolute(), started_as  # the program may change its folder
        self._mark: Path | None = None

    def begin(self) -> None:
        """Leaves the mark of this rank, in the place of what an earlier run of the same rank left.

        Raises:
            OSError: if the folder cannot be made or written to; the sentence says why not.
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
        """Leaves the recording, and takes the mark away once it is there; what fails is a note of the recording."""
        ranked = _ranked(recording, from_environment() or self._started_as)
        number = ranked.setup.world.rank if ranked.setup.world is not None else 0
        try:
            ranked.save(_recording_of(self.folder, number))
            if self._mark is not None:
                self._mark.unlink(missing_ok=True)
        except OSError as error:
            said = f"The recording of rank {number} could not be saved in {self.folder}: {error.strerror or error}."
            return replace(ranked, notes=(*ranked.notes, said))
        return ranked


def _recording_of(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank:05d}.npz"


def _ranked(recording: Recording, known: tuple[int, int] | None) -> Recording:
    """The recording with its rank as the launcher says it, where no process group was seen."""
    world = recording.setup.world or World()
    if world.world_size > 1 or known is None:
        return recording
    rank, size = known
    return replace(recording, setup=replace(recording.setup, world=replace(world, rank=rank, world_size=size)))

"""Running sums of one process' fetches, and the memory-mapped file in which workers store theirs.

A worker writes a few doubles and, now and then, a page of text (the costs of its lines) into its own slot. This needs
no queue, no lock and no pickling, and the values outlive the worker. The first cell of the file identifies the run.
"""

from __future__ import annotations

import contextlib
import mmap
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpu_doctor.capture.fetch import scratch

RECENT: Final = 60
"""Number of recent fetches per process whose wall seconds are stored, for the spread."""
FIRST_FETCHES: Final = 16
"""Number of first fetches that are all metered: a trial has few."""
COST_SHARE: Final = 0.005
"""Share of the fetch time that metering may take on average, by its own measured cost."""
MOST_SKIPPED: Final = 63
"""Most fetches skipped per metered one, on average, however short the fetches are."""


class Sums(NamedTuple):
    """Sums over fetches; a metered fetch also counts for those skipped since the one metered before."""

    batches: float
    wall_s: float
    cpu_s: float
    collate_s: float
    collate_cpu_s: float
    queued_s: float
    """Seconds queued for a core; as `read_bytes` and `stored_bytes`, from `ThreadCounters.read`; NaN = not counted."""
    read_bytes: float
    stored_bytes: float
    stored_s: float
    """Wall seconds of fetches that read from storage."""


HEAD: Final = len(Sums._fields)
"""Number of cells with sums; the wall seconds of recent fetches follow them."""
_FAILED: Final = HEAD + RECENT
"""Index of the last cell: 1 if the meter has failed in this process, and measures no more."""
TALLY_BYTES: Final = 8 * (_FAILED + 1)
LINES_BYTES: Final = 4096
"""Bytes for the text with the costs of a process' lines."""
SLOT_BYTES: Final = TALLY_BYTES + LINES_BYTES
FIRST_BYTES: Final = 64
"""Bytes before the slots, which identify the run."""
MOST_SLOTS: Final = 1024
"""Most worker processes metered in one run, with a slot each; later epochs' workers add to the slot of their id."""


class Tally:
    """Running sums of one process' fetches, and the page with its line costs, in a buffer of a slot's size."""

    def __init__(self, buffer: Any, offset: int = 0) -> None:
        """Args: buffer: memory that holds the slot. offset: the slot's first byte."""
        whole = memoryview(buffer)[offset : offset + SLOT_BYTES]
        self.cells = whole[:TALLY_BYTES].cast("d")
        """The fields of `Sums`, then the wall seconds of recent fetches, then the failure flag."""
        self.page = whole[TALLY_BYTES:]
        """The text with the line costs."""
        self.to_skip = 0
        """Number of next fetches that are not metered."""
        self._weight = 1
        """Number of fetches that the next metered one counts for."""
        self._metered = int(self.cells[0])  # a worker of a later epoch continues its predecessor's slot
        self._cost_s = 0.0
        self._random = random.Random(1)  # our own: the user's random state must not change

    def add(self, wall_s: float, clocks: Sequence[float], counts: Sequence[float], cost_s: float) -> None:
        """Adds a metered fetch, and decides by its cost and by chance which fetch is metered next.

        Args:
            wall_s: wall seconds of the fetch.
            clocks: CPU seconds of the fetch, wall seconds of the collate, CPU seconds of the collate.
            counts: the kernel's counts during the fetch: see `ThreadCounters.read`.
            cost_s: seconds that metering the fetch took.
        """
        cells, weight = self.cells, self._weight
        cells[HEAD + self._metered % RECENT] = wall_s
        self._metered += 1
        stored = counts[2]
        stored_s = wall_s if stored > 0.0 else stored  # NaN, not counted here, stays NaN
        for at, value in enumerate((wall_s, *clocks, *counts, stored_s), 1):
            cells[at] += weight * value
        cells[0] += weight  # last: a reader that comes in between is one fetch late
        mean_s = cells[1] / cells[0]
        self._cost_s += (0.1 if self._cost_s else 1.0) * (cost_s - self._cost_s)
        if self._metered >= FIRST_FETCHES:
            skipped = min(int(self._cost_s / (COST_SHARE * mean_s)) if mean_s > 0.0 else MOST_SKIPPED, MOST_SKIPPED)
            # A fixed distance could match a period in the data.
            self.to_skip = self._random.randint(0, 2 * skipped)
            self._weight = self.to_skip + 1

    @property
    def sums(self) -> Sums:
        """The sums so far."""
        return Sums(*self.cells[:HEAD].tolist())

    @property
    def recent(self) -> list[float]:
        """Wall seconds of the recent metered fetches."""
        return [wall_s for wall_s in self.cells[HEAD:_FAILED].tolist() if wall_s > 0.0]

    def fail(self) -> None:
        """Records that the meter has failed in this process."""
        self.cells[_FAILED] = 1.0

    @property
    def failed(self) -> bool:
        """True if the meter has failed in this process, so that the sums are incomplete."""
        return bool(self.cells[_FAILED])


class SlotFile:
    """A scratch file with a slot for each worker process, mapped into the processes that use it."""

    def __init__(self, path: str) -> None:
        """Maps the file at `path`, which `made` has made."""
        self.path = path
        with Path(path).open("r+b") as file:
            scratch.hold(file.fileno())
            self.map = mmap.mmap(file.fileno(), 0)  # keeps a copy of the descriptor, and with it the lock
        self._run_began = memoryview(self.map)[:8].cast("d")

    @classmethod
    def made(cls) -> SlotFile:
        """Makes a new file; unused slots take no memory."""
        return cls(scratch.make_file(FIRST_BYTES + SLOT_BYTES * MOST_SLOTS))

    @property
    def run_began(self) -> float:
        """Time when the run began, in s, which identifies it; 0.0 once it is over and workers are to stop measuring."""
        return self._run_began[0]

    @run_began.setter
    def run_began(self, value: float) -> None:
        self._run_began[0] = value

    def remove(self, unmap: bool) -> None:
        """Removes the file; other processes that have mapped it keep their view.

        Windows removes no file that is mapped somewhere; there it stays until a later run's `scratch.sweep`.

        Args:
            unmap: True if this process no longer needs its own view.
        """
        if unmap:
            self._run_began.release()
            with contextlib.suppress(BufferError):  # a reader uses a slot: the view goes with the last reader
                self.map.close()
        with contextlib.suppress(OSError):
            Path(self.path).unlink()

    def tally(self, slot: int) -> Tally:
        """Returns the tally of a slot, which shows later changes."""
        return Tally(self.map, FIRST_BYTES + slot * SLOT_BYTES)

    def copy(self, slot: int) -> Tally:
        """Returns a copy of the tally of a slot."""
        begin = FIRST_BYTES + slot * SLOT_BYTES
        return Tally(self.map[begin : begin + SLOT_BYTES])

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        begin = FIRST_BYTES + slot * SLOT_BYTES
        self.map[begin : begin + SLOT_BYTES] = bytes(SLOT_BYTES)

"""Running sums of one process' fetches, and the memory-mapped file in which workers keep theirs.

A worker writes a few doubles and, now and then, a page of text (its dear lines) into a slot of its own: no queue, no
lock, nothing to unpickle, and what it wrote outlives it. The first cell of the file says which run it serves.
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
"""Wall seconds of so many recent fetches are kept per process, for the spread."""
FIRST_FETCHES: Final = 16
"""So many fetches are metered before any is left out: a trial has few."""
COST_SHARE: Final = 0.005
"""Part of the fetch time that metering may take on average, by what metering a fetch is measured to take."""
MOST_SKIPPED: Final = 63
"""On average, however short the fetches are."""


class Sums(NamedTuple):
    """Sums over fetches; a metered fetch counts for those since the metered one before it, too."""

    batches: float
    wall_s: float
    cpu_s: float
    collate_s: float
    collate_cpu_s: float
    queued_s: float
    """This and what follows, but for `stored_s`, as `ThreadCounters.read` says: NaN = not counted here."""
    read_bytes: float
    stored_bytes: float
    stored_s: float
    """Wall seconds of fetches during which anything came from storage."""


HEAD: Final = len(Sums._fields)
"""Sums, and after them the recent walls."""
_FAILED: Final = HEAD + RECENT
"""The last cell: 1 if metering has failed in this process, which fetches bare since then."""
TALLY_BYTES: Final = 8 * (_FAILED + 1)
LINES_BYTES: Final = 4096
"""Room for a process' dear lines as text."""
SLOT_BYTES: Final = TALLY_BYTES + LINES_BYTES
FIRST_BYTES: Final = 64
"""Before the slots: which run it serves."""
MOST_SLOTS: Final = 1024
"""Worker processes metered in one run (a slot each; epochs start new workers that add to their id's slot)."""


class Tally:
    """Running sums of one process' fetches, and a page of its dear lines, over a buffer of a slot's size."""

    def __init__(self, buffer: Any, offset: int = 0) -> None:
        """Args: buffer, offset: where the slot lies."""
        whole = memoryview(buffer)[offset : offset + SLOT_BYTES]
        self.cells = whole[:TALLY_BYTES].cast("d")
        """As `Sums`, then the recent walls."""
        self.page = whole[TALLY_BYTES:]
        """The text of the dear lines."""
        self.left = 0
        """Fetches to come that are not metered."""
        self._weight = 1
        """How many fetches the next metered one counts for."""
        self._metered = int(self.cells[0])  # a worker of a later epoch goes on where its predecessor stopped
        self._cost_s = 0.0
        self._random = random.Random(1)  # an own one: the user's random state must not move

    def add(self, wall_s: float, clocks: Sequence[float], counts: Sequence[float], cost_s: float) -> None:
        """Counts a metered fetch, and decides by its cost and by chance which one is metered next.

        Args:
            wall_s: of the fetch.
            clocks: its CPU seconds, wall seconds of the collate, CPU seconds of the collate.
            counts: what the kernel counted during it: see `ThreadCounters.read`.
            cost_s: what metering it took.
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
            # A fixed distance would beat with periods in the data.
            self.left = self._random.randint(0, 2 * skipped)
            self._weight = self.left + 1

    @property
    def sums(self) -> Sums:
        """All sums so far."""
        return Sums(*self.cells[:HEAD].tolist())

    @property
    def recent(self) -> list[float]:
        """Wall seconds of the recent metered fetches."""
        return [wall_s for wall_s in self.cells[HEAD:_FAILED].tolist() if wall_s > 0.0]

    def fail(self) -> None:
        """Something of ours raised around a fetch of this process."""
        self.cells[_FAILED] = 1.0

    @property
    def failed(self) -> bool:
        """Whether the sums end where something of ours raised."""
        return bool(self.cells[_FAILED])


class SlotFile:
    """A scratch file with a slot for each worker process, mapped into the processes that use it."""

    def __init__(self, path: str) -> None:
        """Maps a file that `made` made."""
        self.path = path
        with Path(path).open("r+b") as file:
            scratch.hold(file.fileno())
            self.map = mmap.mmap(file.fileno(), 0)  # keeps a copy of the descriptor, and with it the file held
        self._generation = memoryview(self.map)[:8].cast("d")

    @classmethod
    def made(cls) -> SlotFile:
        """A new file; slots that nobody uses cost nothing."""
        return cls(scratch.made(FIRST_BYTES + SLOT_BYTES * MOST_SLOTS))

    @property
    def generation(self) -> float:
        """Which run the file serves: another number for each, 0 when it is over and workers are to meter no more."""
        return self._generation[0]

    @generation.setter
    def generation(self, value: float) -> None:
        self._generation[0] = value

    def remove(self, unmap: bool) -> None:
        """Takes the file's name away; other processes that mapped it keep their view.

        Windows removes no file that is mapped somewhere. There it stays until a later run's `scratch.sweep`.

        Args:
            unmap: this process needs its own view no more.
        """
        if unmap:
            self._generation.release()
            with contextlib.suppress(BufferError):  # somebody reads a slot: the view goes with its last reader
                self.map.close()
        with contextlib.suppress(OSError):
            Path(self.path).unlink()

    def tally(self, slot: int) -> Tally:
        """The sums and the page of a slot, as they grow."""
        return Tally(self.map, FIRST_BYTES + slot * SLOT_BYTES)

    def copy(self, slot: int) -> Tally:
        """The sums and the page of a slot as they are now."""
        begin = FIRST_BYTES + slot * SLOT_BYTES
        return Tally(self.map[begin : begin + SLOT_BYTES])

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        begin = FIRST_BYTES + slot * SLOT_BYTES
        self.map[begin : begin + SLOT_BYTES] = bytes(SLOT_BYTES)

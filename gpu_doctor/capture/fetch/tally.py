"""Running sums of one process' fetches, and the memory-mapped file in which workers keep theirs.

A worker writes a few doubles and, now and then, a page of text (its dear lines) into a slot of its own: no queue, no
lock, nothing to unpickle, and what it wrote outlives it. The first cell of the file says which run it serves.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor.capture.fetch import scratch
from gpu_doctor.capture.fetch.sums import Sums
from gpu_doctor.capture.fetch.thread_counters import COST_S

if TYPE_CHECKING:
    from gpu_doctor.capture.lines.fetch_sampler import FetchLines

RECENT: Final = 60
"""Wall seconds of so many recent fetches are kept per process, for the spread."""
SLOW_FETCH_S: Final = 2e-3
"""From so long on, or where they last so long on average, every fetch's CPU and collate seconds are read: that takes
4 us with hot caches and 6 around a fetch that computes, 0.3 %."""
SLOW_OWN_FETCH_S: Final = 2e-4
"""As above where single fetches are metered at all: those of the training process (see `sources`)."""
EVERY: Final = 7
"""Of faster fetches one in so many is metered in full (a prime, so as not to beat with periods in the data),"""
SELDOM: Final = 23
"""and one in so many"""
KNOWN: Final = 20 * EVERY
"""from this one on: what a part of them takes is known by then."""
COUNTED_SHARE: Final = 0.002
"""Part of the fetch time that reading the kernel's counters may cost on average."""
HEAD: Final = 13
"""Sums, and after them the recent walls."""
_FAILED: Final = HEAD + RECENT
"""The last cell: 1 if metering has failed in this process, which fetches bare since then."""
_DOUBLES: Final = _FAILED + 1
TALLY_BYTES: Final = 8 * _DOUBLES
LINES_BYTES: Final = 4096
"""Room for a worker's dear lines as text."""
SLOT_BYTES: Final = TALLY_BYTES + LINES_BYTES
FIRST_BYTES: Final = 64
"""Before the slots: which run it serves."""
MOST_SLOTS: Final = 1024
"""Worker processes metered in one run (a slot each; epochs start new workers that add to their id's slot)."""


class Tally:
    """Running sums of one process' fetches over a writable buffer of doubles."""

    def __init__(self, buffer: Any, offset: int = 0, slow_s: float = SLOW_FETCH_S) -> None:
        """Args: buffer, offset: where it lies. slow_s: see there."""
        self.slow_s = slow_s
        """Fetches of so long are metered in full, every one."""
        self.cells = memoryview(buffer)[offset : offset + TALLY_BYTES].cast("d")
        """As `Sums`, then the recent walls."""
        self.count = int(self.cells[0])  # a worker of a later epoch goes on where its predecessor stopped
        """Fetches so far."""
        self.left = 0
        """Fetches to come of which the wall alone is read. The CPU clock is a system call: where fetches are fast it is
        read for one in EVERY or SELDOM of them, which leaves the expected sums as they are: over `timed_wall_s` they
        give the parts of a fetch's wall."""
        self.weight = 1
        """For how many fetches the CPU and collate seconds of the first one after these stand."""
        self.counted = True
        """Whether the kernel's counters are read for that one.

        They are dearer than the clocks, so they are read for a random part of the fetches, as large as COUNTED_SHARE
        of the mean fetch allows. Chance decides, not the fetch itself, so their mean is that of all.
        """
        self.lines: FetchLines | None = None
        """Looks at the lines of these fetches."""
        self._dice = 12345
        self._cost_s = COST_S

    def add(
        self,
        wall_s: float,
        weight: int = 0,
        cpu_s: float = 0.0,
        collate_s: float = 0.0,
        collate_cpu_s: float = 0.0,
    ) -> None:
        """One fetch; its CPU and collate seconds, where they were read, count `weight` times."""
        cells, count = self.cells, self.count
        # Sums last and the count after them: a reader that comes in between is one fetch late.
        cells[HEAD + count % RECENT] = wall_s
        total_s = cells[1] + wall_s
        cells[1] = total_s
        if weight:
            cells[2] += weight * cpu_s
            cells[3] += weight * collate_s
            cells[11] += weight * wall_s
            cells[12] += weight * collate_cpu_s
        cells[0] += 1.0
        self.count = count = count + 1
        self._choose(wall_s, count)
        self._dice = dice = (self._dice * 1103515245 + 12345) & 0x7FFFFFFF
        self.counted = COUNTED_SHARE * total_s * self.weight * 0x7FFFFFFF > self._cost_s * count * dice

    def put(self, walls_s: Sequence[float]) -> None:
        """Fetches of which the wall alone was read, oldest first; one that was slow is the last of them."""
        cells, count = self.cells, self.count
        for at, wall_s in enumerate(walls_s, count):
            cells[HEAD + at % RECENT] = wall_s
        cells[1] += sum(walls_s)
        cells[0] += float(len(walls_s))
        self.count = count = count + len(walls_s)
        self._choose(walls_s[-1], count)

    def _choose(self, wall_s: float, count: int) -> None:
        """How the next fetches are metered, `count` before them, the last of which took `wall_s`."""
        if wall_s >= self.slow_s or self.cells[1] >= self.slow_s * count:
            # Few slow ones among many fast are most of the time, and what the fast ones do tells nothing of them.
            self.left, self.weight = 0, 1
        else:
            every = EVERY if count < KNOWN else SELDOM
            self.left, self.weight = -count % every, every

    def tell(self, wall_s: float, counts: Sequence[float], cost_s: float = COST_S) -> None:
        """What the kernel counted during one fetch: see `ThreadCounters.read`; `cost_s` is what reading it took."""
        self._cost_s += 0.1 * (min(cost_s, 10.0 * COST_S) - self._cost_s)
        cells = self.cells
        cells[4] += 1.0
        cells[5] += wall_s
        for at, value in enumerate(counts, 6):
            cells[at] += value
        if counts[2] != 0.0:  # NaN, not counted here, stays NaN
            cells[10] += wall_s if counts[2] > 0.0 else counts[2]

    @property
    def mean_s(self) -> float:
        """Mean wall seconds of a fetch so far."""
        return float(self.cells[1] / self.cells[0]) if self.cells[0] else 0.0

    @property
    def sums(self) -> Sums:
        """All sums so far."""
        return Sums(*self.cells[:HEAD].tolist())

    def fail(self) -> None:
        """Something of ours raised around a fetch of this process."""
        self.cells[_FAILED] = 1.0

    @property
    def failed(self) -> bool:
        """Whether the sums end where something of ours raised."""
        return bool(self.cells[_FAILED])

    @property
    def recent(self) -> list[float]:
        """Wall seconds of the recent fetches."""
        return list(self.cells[HEAD : HEAD + min(int(self.cells[0]), RECENT)].tolist())


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
        return float(self._generation[0])

    @generation.setter
    def generation(self, value: float) -> None:
        self._generation[0] = value

    def remove(self) -> None:
        """Takes the file's name away; processes that mapped it keep their view."""
        Path(self.path).unlink(missing_ok=True)

    def tally(self, slot: int) -> Tally:
        """The sums of a slot."""
        return Tally(self.map, FIRST_BYTES + slot * SLOT_BYTES)

    def page(self, slot: int) -> memoryview:
        """The text of a slot's dear lines."""
        begin = FIRST_BYTES + slot * SLOT_BYTES + TALLY_BYTES
        return memoryview(self.map)[begin : begin + LINES_BYTES]

    def clear(self, slot: int) -> None:
        """Empties a slot."""
        begin = FIRST_BYTES + slot * SLOT_BYTES
        self.map[begin : begin + SLOT_BYTES] = bytes(SLOT_BYTES)

"""How long a step takes when workers and training share the cores, by what each thread needs of them.

A computing thread is on a core for its part of the time, the cores over the threads that could run. Work of one thread
takes as much longer. Work that torch splits among several threads ends with the last of them, and they wait at that
barrier on their cores. If the kernel ran the threads together, such work would get on at the part of one thread; if it
puts each aside when it likes, only while all happen to run, which is the product of their parts (Feitelson and Rudolph,
Gang scheduling performance benefits for fine-grain synchronization, JPDC 16(4), 1992). Nothing that is recorded tells
how long the pieces of work are beside the kernel's slices: a forecast lies in the middle, its ends are these two.

While the loop waits for a batch, the other threads of the pool go on spinning for a while and take cores from workers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fetching import SPIN_S

HALVINGS: Final = 40
"""Of the search for a part of the time: exact to 1e-12."""


@dataclass(frozen=True)
class Work:
    """What a step needs if every thread has a core: seconds, threads and workers."""

    busy: float
    """Of the loop's own work on cores, with all its threads,"""
    idle: float
    """and off them."""
    threads: float
    """Threads that are on cores while the loop is busy, 1 at least."""
    fetch: float
    """CPU seconds of the workers in all."""
    waiting: float
    """Seconds in which fetches wait for anything but a core."""
    workers: float

    def fetched(self, part: float) -> float:
        """Seconds of the step's fetches for a worker that is on a core for so much of the time that it could be."""
        return self.waiting + self.fetch / part

    def loading(self, part: float) -> float:
        """Workers that are on a core or wait for one, if all fetch without a break."""
        return self.workers * self.fetch / (part * self.fetched(part)) if self.fetch > 0 else 0.0


@dataclass(frozen=True)
class Sharing:
    """How the loop's threads get on beside others: one end of what is possible, or the middle."""

    alone: float
    """0: its threads run together; 1: each runs when it likes; 0.5: the middle of the two."""
    spins: bool
    """Whether threads that wait for work keep their cores for a while."""

    def progress(self, part: float, threads: float) -> float:
        """How fast the loop's own work gets on, 0..1, if its threads are on a core for so much of the time."""
        return float(part ** (1.0 + self.alone * (threads - 1.0)))


TOGETHER: Final = Sharing(0.0, False)
MIDDLE: Final = Sharing(0.5, True)
APART: Final = Sharing(1.0, True)


def loop_bound_s(work: Work, cores: float, sharing: Sharing, others: float = 0.0) -> float:
    """Seconds of a step if workers keep up: of them, as many could run as it takes to fetch a step's batches in one.

    Args:
        work: of a step and of its fetches.
        cores: of computing that the machine has for this process.
        sharing: what threads get of them.
        others: threads of other programs that could run.
    """

    def step(part: float) -> float:
        return work.idle + work.busy / sharing.progress(part, work.threads)

    def threads(part: float) -> float:
        whole = max(step(part), 1e-12)
        loading = min(work.fetch / (part * whole), work.loading(part))
        return work.threads * (1.0 - work.idle / whole) + loading + others

    return step(_part(threads, cores))


def fetch_bound_s(work: Work, cores: float, sharing: Sharing, others: float = 0.0) -> float:
    """Seconds of a step if all workers fetch all the time and the loop waits; 0 where they would be ahead of it."""
    beside = _part(lambda part: work.threads + work.loading(part) + others, cores)
    busy = work.busy / sharing.progress(beside, work.threads)
    left = 1.0 - busy * work.workers / max(work.fetched(beside), 1e-12)

    def after(spinning: float) -> float:
        part = _part(lambda part: work.loading(part) + spinning + others, cores)
        return left * work.fetched(part) / work.workers

    alone = after(0.0)
    if left <= 0.0 or alone < work.idle:
        return 0.0
    spinning = (work.threads - 1.0) * min(SPIN_S / alone, 1.0) if sharing.spins else 0.0
    return busy + after(spinning)


def _part(threads: Callable[[float], float], cores: float) -> float:
    """The part of the time that each thread is on a core, which is what so many threads leave to each.

    Args:
        threads: that could run, by that part.
        cores: that they share.
    """
    least, most = 1e-6, 1.0
    if threads(most) <= cores:
        return most
    for _ in range(HALVINGS):
        part = (least + most) / 2.0
        if part * threads(part) <= cores:
            least = part
        else:
            most = part
    return least

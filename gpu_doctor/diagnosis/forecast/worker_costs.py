"""What workers cost besides their work: starting them, and handing a batch over to the loop, ready ones included.

Each tensor of a batch is put into shared memory, and its file descriptor is fetched from the worker over a socket of
its own: system calls and wake-ups on both sides, whatever the tensor holds. Its pages are then mapped anew in the
loop's process, which pays for them when it first reads them.

Source of the figures: benchmarks/handing.py on a virtual machine of 2 cores (fork, batches ready before they are asked
for, the loop busy with Python, busy with matrix products, or asleep), on two days of which the second was 1.4 times as
slow in all of this; the figures lie between. For 1, 2, 4 and 8 tensors `next()` took 0.6-1.4, 1.1-2.2, 1.4-3.4 and
2.4-5.2 ms; a machine without virtualisation is faster, hence the doubt.

A fork copies the page tables of the process that forks: the more memory in small objects the notebook holds, the longer
each worker's start takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

TAKING_S: Final = 5.5e-4
TAKING_S_PER_TENSOR: Final = 4.8e-4
"""Wall seconds of `next()` with a batch ready,"""
TAKING_CPU_S: Final = 4e-4
TAKING_CPU_S_PER_TENSOR: Final = 3e-4
"""and the CPU seconds of the loop's process in it."""
TOUCHING_S_PER_BYTE: Final = 0.4e-9
"""What reading a batch for the first time costs more than where it lies in the loop's own memory: 0.42 ms for 1 MB and
2.3 ms for 8 MB, beside a loader without workers."""
PACKING_S: Final = 6e-4
PACKING_S_PER_TENSOR: Final = 2.9e-4
PACKING_S_PER_BYTE: Final = 0.85e-9
"""CPU seconds of a worker."""
BESIDE_S: Final = 2.6e-4
"""What the loop's own work of a step takes longer for each batch that a worker hands it: it wakes on a core whose
caches hold other things (0.33, 0.86 and 2.0 ms without workers, 0.55, 1.3 and 2.7 with, at 0.83 of the usual round)."""
MAKING_S: Final = 1.1e-4
MAKING_S_PER_TENSOR: Final = 0.7e-4
"""What a batch takes longer to make in a worker, which wakes for it, than in the loop, beside `PACKING_S_PER_BYTE` for
the new pages of shared memory into which it is collated: 0.10, 0.18 and 0.57 ms in the loop, 0.34, 0.41 and 0.82 in a
worker (two tensors of 1.5 kB); 0.14 and 0.58 ms where they hold 262 kB, 0.33 and 0.73 with 393 kB."""
NEW_PAGES: Final = 0.5
"""So much of what a byte in new pages costs is paid beside workers alone: the loop's own memory has new pages too."""
READING_MOST: Final = 0.1
FILLING_MOST: Final = 0.3
"""New pages take no more than this of the loop's own work and of the fetch: 0.09 and 0.26 were measured."""
USUAL_TENSORS: Final = 2.0
"""Inputs and targets: where nobody counted."""
ROUND_S: Final = 4.5e-8
"""CPU seconds of a round of a small Python loop (`probes.pace`) on the machine of these figures: where a round takes
1.5 times as long, so does handing over (42 measurements while that machine wandered between 1.2 and 1.7 times as long:
the CPU time of `next()`, of the worker and of a worker's start were 1.4 to 2 times the figures above)."""
PACES: Final = (0.4, 4.0)
"""Beyond these it is another Python that is fast or slow, rather than the machine."""
DOUBT: Final = (0.25, 2.0)
"""Other machines need from a quarter of these times to twice as much."""
# Workers start at an epoch's begin and end with it: 12.5 ms each under fork (2.5 of them at the end), on a virtual
# machine of 2 cores, and 15 ms until the first works; spawn and forkserver are estimates: they import torch again.
START_S: Final = {"fork": 0.015, "forkserver": 0.5, "spawn": 2.0}
START_S_PER_WORKER: Final = {"fork": 0.0045, "forkserver": 1.0, "spawn": 1.5}
FORK_S_PER_BYTE: Final = 1.0e-8
"""Seconds a byte of the page tables that a fork copies: 8, 15, 21, 33 and 41 ms for 0.71, 1.41, 2.11, 2.80 and 3.49 MiB
(0.15 to 1.5 GB of small objects; the pages of 2 MB that numpy takes for large arrays need next to none)."""
USUAL_PAGE_TABLES: Final = 8e5
"""Bytes, where they were not read: of a kernel with torch and a small dataset."""


@dataclass(frozen=True)
class Handing:
    """Seconds that handing over takes of a step."""

    taking: float
    """Of the loop's time."""
    taking_cpu: float
    """Of the cores, in the loop's process."""
    packing: float
    """Of the worker's time and of the cores."""
    beside: float
    reading: float
    """Of the loop's own work, which is done in so much less where it fetches itself: however large batches are, and by
    their bytes."""
    making: float
    filling: float
    """Of the fetch, which takes so much less in the loop itself: the same two."""


def pace(vitals: Vitals) -> float:
    """How many times as long as on the machine of these figures the same work takes; 1 where nobody timed it."""
    taken = vitals.python_round_s
    return 1.0 if not taken else min(max(taken / ROUND_S, PACES[0]), PACES[1])


def handing(batches: float, nbytes: float, tensors: float | None = None, doubt: float = 1.0) -> Handing:
    """What handing over costs a step.

    Args:
        batches: of a step.
        nbytes: of all their tensors.
        tensors: of one batch, None = not counted.
        doubt: scales all of it, see `DOUBT`.
    """
    pieces = USUAL_TENSORS if tensors is None else tensors
    touching = TOUCHING_S_PER_BYTE * nbytes
    return Handing(
        taking=doubt * (batches * (TAKING_S + TAKING_S_PER_TENSOR * pieces) + touching),
        taking_cpu=doubt * (batches * (TAKING_CPU_S + TAKING_CPU_S_PER_TENSOR * pieces) + touching),
        packing=doubt * (batches * (PACKING_S + PACKING_S_PER_TENSOR * pieces) + PACKING_S_PER_BYTE * nbytes),
        beside=doubt * batches * BESIDE_S,
        reading=doubt * NEW_PAGES * touching,
        making=doubt * batches * (MAKING_S + MAKING_S_PER_TENSOR * pieces),
        filling=doubt * NEW_PAGES * PACKING_S_PER_BYTE * nbytes,
    )


def starting_s(vitals: Vitals, workers: float, method: str = "") -> float:
    """Seconds that an epoch takes longer because so many workers start at its begin and end with it.

    Args:
        vitals: of the loop.
        workers: how many.
        method: of starting; empty = the loader's own, fork where unknown.
    """
    own = vitals.loader.start_method if vitals.loader is not None else ""
    method = next((one for one in (method, own) if one in START_S), "fork")
    each = START_S_PER_WORKER[method]
    if method == "fork":
        each += FORK_S_PER_BYTE * (vitals.page_table_bytes or USUAL_PAGE_TABLES)
    return pace(vitals) * (START_S[method] + each * workers)

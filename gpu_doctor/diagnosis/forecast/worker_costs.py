"""What workers cost besides their work: handing a batch over to the loop, ready ones included, and starting.

A batch is a message, and so is each of its tensors: it is put into shared memory, and its file descriptor is fetched
from the worker over a socket of its own. That is Python, system calls and wake-ups on both sides, whatever the tensor
holds, so that it is reckoned in rounds of a small Python loop, which is timed on the user's machine while the run goes
on. Its pages are new on both sides: the worker fills them, the loop maps them. How many rounds a message takes differs
between machines by more than anything else here: `DOUBT` says by how much, and a forecast's ends are as wide.

A fork copies the page tables of the process that forks, which are read during the run: the more memory in small objects
the notebook holds, the longer each worker's start takes.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

MESSAGE_ROUNDS: Final = 6e3
"""Rounds of the Python loop that each side needs for a message: about the middle, as a factor, of what `DOUBT` allows
for (benchmarks/handing.py: 0.3 to 0.7 ms where a round took 45 ns, on one virtual machine, which is slow in this)."""
NEW_BYTE_S: Final = 6e-10
"""Seconds that each side needs for a byte in new pages: a core fills such with 1 to 2 GB/s."""
DOUBT: Final = (0.25, 3.5)
"""Handing over takes from a quarter of this to so many times as much, which holds all of that table: what a wake-up
costs here nobody has measured, unless the run has workers itself."""
USUAL_TENSORS: Final = 2.0
"""Inputs and targets: where nobody counted."""
ROUND_S: Final = 4.5e-8
"""CPU seconds of a round (`machine.pace`) where nobody timed one."""
PACES: Final = (0.4, 4.0)
"""Times that: beyond, it is another Python that is fast or slow, rather than the machine."""
START_S: Final = {"fork": 0.005, "forkserver": 1.0, "spawn": 2.0}
"""Seconds of a worker's start and end, at each epoch's edge: a fork of a small process; the others import torch again,
and are estimates. Where the run itself has started workers, what it measured stands instead."""
FORK_S_PER_BYTE: Final = 1.0e-8
"""Seconds a byte of the page tables that a fork copies: some 80 ns for the entry of a page (8, 15, 21, 33 and 41 ms for
0.71, 1.41, 2.11, 2.80 and 3.49 MiB)."""
USUAL_PAGE_TABLES: Final = 8e5
"""Bytes, where they were not read: of a kernel with torch and a small dataset."""


def pace(vitals: Vitals) -> float:
    """How many times as long as usual Python takes on the machine of a run; 1 where nobody timed it."""
    taken = vitals.python_round_s
    return 1.0 if not taken else min(max(taken / ROUND_S, PACES[0]), PACES[1])


def handing_s(batches: float, nbytes: float, tensors: float | None = None, doubt: float = 1.0) -> float:
    """Seconds, all of them on a core, that handing a step's batches over takes: of the loop, and of the workers.

    Args:
        batches: of a step.
        nbytes: of all their tensors.
        tensors: of one batch, None = not counted.
        doubt: scales all of it, see `DOUBT` and `pace`.
    """
    messages = batches * (1.0 + (USUAL_TENSORS if tensors is None else tensors))
    return doubt * (messages * MESSAGE_ROUNDS * ROUND_S + nbytes * NEW_BYTE_S)


def starting_s(vitals: Vitals, workers: float) -> float:
    """Seconds that an epoch takes longer because so many workers start at its begin and end with it.

    Args:
        vitals: of the loop.
        workers: how many.
    """
    method = vitals.loader.start_method if vitals.loader is not None else ""
    method = method if method in START_S else "fork"
    tables = FORK_S_PER_BYTE * (vitals.page_table_bytes or USUAL_PAGE_TABLES) if method == "fork" else 0.0
    return pace(vitals) * (START_S[method] + tables) * workers

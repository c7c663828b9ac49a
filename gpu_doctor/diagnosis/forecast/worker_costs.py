"""What workers cost besides their work: handing a batch over to the loop, ready ones included, and starting.

A batch is a message, and so is each of its tensors: it is put into shared memory, and its file descriptor is fetched
from the worker over a socket of its own. That is Python, system calls and wake-ups on both sides, whatever the tensor
holds: it is timed on the user's machine when the run is over (`Speeds`). Its pages are new on both sides: the worker
fills them, the loop maps them.

A fork copies the page tables of the process that forks, which are read during the run: the more memory in small objects
the notebook holds, the longer each worker's start takes.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

MESSAGE_S: Final = 2.7e-4
"""Seconds that each side needs for a message where nobody timed one (while the run goes on, in an earlier version's
recording, on a system that hands no descriptors over): a tenth of a millisecond to one, as `UNTIMED` says."""
NEW_BYTE_S: Final = 6e-10
"""And for a byte in new pages: a core fills such with 1 to 2 GB/s."""
TIMED: Final = (0.5, 2.0)
"""Handing over takes from half to twice what was timed, when this process was both sides. With a real loader `next()`
took 0.6 to 2.5 times as long, a worker's CPU 0.5 to 2 times (18 loaders on a busy machine)."""
UNTIMED: Final = (0.25, 3.5)
"""The same where nobody timed it."""
USUAL_TENSORS: Final = 2.0
"""Inputs and targets: where nobody counted."""
START_MESSAGES: Final = 20.0
"""A worker's fork and end, at each epoch's edge, are as much Python and as many system calls as so many messages."""
IMPORT_S: Final = {"forkserver": 1.0, "spawn": 2.0}
"""The other start methods import torch again; these are estimates. Where the run itself has started workers, what it
measured stands instead."""
FORK_S_PER_BYTE: Final = 1.0e-8
"""Seconds a byte of the page tables that a fork copies: 10 to 20 ms for a GB of memory, of which they are 2 MiB
(netdata.cloud/guides/redis/redis-latest-fork-usec-high); the slow end, where virtual machines are."""
USUAL_PAGE_TABLES: Final = 8e5
"""Bytes, where they were not read: of a kernel with torch and a small dataset."""


def doubt(vitals: Vitals) -> tuple[float, float]:
    """By which factors handing over may take less and more than `handing_s` says."""
    return UNTIMED if vitals.setup.speeds.message_s is None else TIMED


def handing_s(vitals: Vitals, batches: float, nbytes: float, tensors: float | None = None) -> float:
    """Seconds, all of them on a core, that handing a step's batches over takes: of the loop, and of the workers.

    Args:
        vitals: of a loop on this machine.
        batches: of a step.
        nbytes: of all their tensors.
        tensors: of one batch, None = not counted.
    """
    speeds = vitals.setup.speeds
    message_s = MESSAGE_S if speeds.message_s is None else speeds.message_s
    new_byte_s = NEW_BYTE_S if speeds.new_byte_s is None else speeds.new_byte_s
    messages = batches * (1.0 + (USUAL_TENSORS if tensors is None else tensors))
    return messages * message_s + nbytes * new_byte_s


def starting_s(vitals: Vitals, workers: float) -> float:
    """Seconds that an epoch takes longer because so many workers start at its begin and end with it.

    Args:
        vitals: of the loop.
        workers: how many.
    """
    method = vitals.loader.start_method if vitals.loader is not None else ""
    if method in IMPORT_S:
        return IMPORT_S[method] * workers
    message_s = vitals.setup.speeds.message_s or MESSAGE_S
    tables = FORK_S_PER_BYTE * (vitals.page_table_bytes or USUAL_PAGE_TABLES)
    return (START_MESSAGES * message_s + tables) * workers

"""Measures what it costs on this machine to hand a tensor from one process to another, as a loader's workers do.

torch puts a tensor into shared memory, and who is to have it fetches the descriptor over a local socket: that is
Python, system calls and wake-ups, whatever the tensor holds. Here this process is both sides, by the very functions
that a loader uses; neither a process nor a worker is started, and the socket, in a folder that no other user may
enter, is closed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing import resource_sharer
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

import torch
import torch.multiprocessing

ROUNDS: Final = 8
"""A message takes some 0.5 to 1 ms here, the first two or three times as long."""
LARGE: Final = 1 << 22
"""Bytes of a tensor that tells what a byte costs: 2 to 4 ms."""
LARGE_ROUNDS: Final = 3


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Figures of `Speeds` for a run that has a loader, where descriptors are handed over; see `after_run.py`."""
    if not facts.get("loaders") or torch.multiprocessing.get_sharing_strategy() != "file_descriptor":
        return {}
    sharer = getattr(resource_sharer, "_resource_sharer", None)
    # One that serves is the user's: it is left alone, and what it has promised others is not closed.
    return {} if getattr(sharer, "_address", "") is not None else handing()


@cache
def handing(clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """`message_s` and `new_byte_s`, once in a process: the least of some rounds, in all some 25 ms.

    Nothing where no such socket can be made (the path of the temporary folder is too long for one): a forecast of
    workers then has wide ends, as of a run before.

    The least: a thread that takes the interpreter meanwhile makes a round longer, and nothing makes one shorter.
    """
    try:
        with torch.inference_mode(False):
            small, large = (
                min(_message(size, clock) for _ in range(rounds))
                for size, rounds in ((256, ROUNDS), (LARGE, LARGE_ROUNDS))
            )
    except OSError:
        return {}
    finally:
        resource_sharer.stop()
    # Loop and worker share a message about evenly; a byte is written by the one and mapped by the other.
    return {"message_s": small / 2.0, "new_byte_s": max(large - small, 0.0) / LARGE}


def _message(size: int, clock: Callable[[], float]) -> float:
    """Seconds in which a tensor of so many bytes is handed over."""
    tensor = torch.zeros(size // 4, dtype=torch.float32, device="cpu")
    begin = clock()
    ForkingPickler.loads(ForkingPickler.dumps(tensor))
    return clock() - begin

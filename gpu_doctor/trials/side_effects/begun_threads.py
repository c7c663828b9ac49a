"""Waits for threads that a side started and left running, such as one that saves a checkpoint.

What these threads, and the side's own thread pools, write belongs to the side. A cell that uses a thread pool of an
earlier cell is refused: the pool's work would go on after the side.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.used_names import Coded, Reached

PATIENCE_S: Final = 10.0
"""Longest wait for a thread, in seconds: enough to write a checkpoint of some GB."""
LEFT: Final = "A thread that your cell started was still running when its run ended: what it does later is not undone."


def earlier_pools(case: Coded) -> Beforehand:
    """Refuses a cell that can reach a thread pool of an earlier cell."""
    pools = [name for name in sorted(Reached.of(case).names) if isinstance(case.namespace[name], ThreadPoolExecutor)]
    return Beforehand(tuple(f"`{name}` is a thread pool of an earlier cell: create it in this cell." for name in pools))


@contextmanager
def waited_for(namespace: Mapping[str, Any], notes: list[str]) -> Iterator[None]:
    """Waits, at its end, for the threads started inside the context and for the code's own pools.

    Args:
        namespace: namespace in which the code runs.
        notes: receives a sentence if a thread is still running after the wait.
    """
    before, pools = set(threading.enumerate()), _pools(namespace)
    try:
        yield
    finally:
        until = time.monotonic() + PATIENCE_S
        own = [pool for key, pool in _pools(namespace).items() if key not in pools]
        for pool in own:
            pool.shutdown(wait=False)
        ending = {thread for pool in own for thread in pool._threads}
        begun = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
        waited = [thread for thread in begun if thread in ending or not _serves_a_pool(thread)]
        for thread in waited:
            thread.join(max(until - time.monotonic(), 0.0))
        if any(thread.is_alive() for thread in waited):
            notes.append(LEFT)


def _pools(namespace: Mapping[str, Any]) -> dict[int, ThreadPoolExecutor]:
    return {id(pool): pool for pool in list(namespace.values()) if isinstance(pool, ThreadPoolExecutor)}


def _serves_a_pool(thread: threading.Thread) -> bool:
    """True if the thread is the worker of a library's pool: such a thread waits for work forever."""
    return getattr(getattr(thread, "_target", None), "__module__", "") == "concurrent.futures.thread"

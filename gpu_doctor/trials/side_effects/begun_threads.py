"""Threads that a side's code begins or gives work to and leaves working, such as one that saves a checkpoint.

They are waited for: what they write meanwhile belongs to the side, and is put back with the rest. A thread that a cell
leaves running for good (a filler that waits for its queue) is no reason to wait for ever: it is named.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import Any, Final

PATIENCE_S: Final = 10.0
"""A checkpoint of some GB is written in so long."""
LEFT: Final = "A thread that your cell began was still running when its run ended: what it does later is not put back."


@contextmanager
def waited_for(notes: list[str]) -> Iterator[None]:
    """Waits for pools of threads to have done their work, and for threads begun meanwhile that programs wait for.

    Args:
        notes: gets a sentence where one goes on all the same.
    """
    before = set(threading.enumerate())
    try:
        yield
    finally:
        until = time.monotonic() + PATIENCE_S
        pools = {id(pool): pool for one in threading.enumerate() if (pool := _pool_of(one)) is not None}
        done = [_idle(pool, until) for pool in pools.values()]
        begun = [one for one in threading.enumerate() if one not in before and not one.daemon and _pool_of(one) is None]
        for one in begun:
            one.join(max(until - time.monotonic(), 0.0))
        if not all(done) or any(one.is_alive() for one in begun):
            notes.append(LEFT)


def _pool_of(thread: threading.Thread) -> ThreadPoolExecutor | None:
    """The pool that a thread works for: its worker was begun with a weak reference to it."""
    given: Any = getattr(thread, "_args", None) or ()
    pool = given[0]() if given and isinstance(given[0], weakref.ref) else None
    return pool if isinstance(pool, ThreadPoolExecutor) else None


def _idle(pool: ThreadPoolExecutor, until: float) -> bool:
    """Whether all that was given to a pool is done in time: all its threads meet, which they do when none works."""
    meeting = threading.Barrier(pool._max_workers)
    with suppress(RuntimeError):  # it takes no further work: it ends when what it has is done
        met = [pool.submit(_meets, meeting, until) for _ in range(meeting.parties)]
        done, waiting = wait(met, max(until - time.monotonic(), 0.0))
        return not waiting and all(one.exception() is None for one in done)
    return True


def _meets(meeting: threading.Barrier, until: float) -> None:
    meeting.wait(max(until - time.monotonic(), 0.001))

"""Reads another thread's stack in one piece.

Python creates frame objects on demand. In 3.11, creating one may start a garbage collection on the reading thread, in
the middle of the interpreter's walk through another thread's frames. A finalizer that waits (a DataLoader's, which ends
its workers) then lets the other thread run on. The walk goes on in frames that no longer exist, or with the lock of the
list of threads held, which ends in a deadlock (CPython issue 106883). So in 3.11 all frame objects of the stack are
created with the collector off, by C code alone: no other thread runs between its calls, and none sees the collector
switched off. In other versions no collection starts there: 3.10 has created all frame objects already, and from 3.12 on
collections wait for the end of the running operation.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, chain, compress, repeat
from types import FrameType
from typing import Any, Final

DEEPEST: Final = 1000
"""Most frames of a stack that are read."""
LOOKED_THROUGH: Final = 200
"""Most frames of a stack that are searched."""
_COLLECTS: Final = sys.version_info[:2] == (3, 11)


def stack_of(thread: int) -> list[FrameType]:
    """Returns the frames of a thread, innermost first; an empty list if there is no such thread.

    While the list is held, a walk by `f_back` creates no frames, unless a generator was resumed meanwhile.

    Args:
        thread: the thread's `threading.get_ident()`.
    """
    return _without_collecting(thread) if _COLLECTS else list(outwards(sys._current_frames().get(thread), DEEPEST))


def outwards(frame: FrameType | None, most: int = LOOKED_THROUGH) -> Iterator[FrameType]:
    """Yields a frame and its callers, at most `most` frames."""
    while frame is not None and most > 0:
        yield frame
        frame, most = frame.f_back, most - 1


def _without_collecting(thread: int) -> list[FrameType]:
    """Reads a thread's frames with the collector off, in one call into C that switches it on again if it was on.

    The frames of all threads include the one of this function: storing them here would make a reference cycle.
    """
    call: Any = getattr(operator, "call")  # noqa: B009 (Python 3.10 has none, and does not come here)
    get: Any = dict.get
    innermost = map(get, map(call, (sys._current_frames,)), (thread,))
    backwards: Any = accumulate(chain(innermost, repeat("f_back", DEEPEST - 1)), getattr)
    frames: Any = partial(list, iter(partial(next, backwards, None), None))
    was_on: list[bool] = []
    remember = partial(was_on.extend, map(call, (gc.isenabled,)))
    turns = chain((remember, gc.disable, frames), compress((gc.enable,), was_on))
    try:
        found: list[FrameType] = list(map(call, turns))[2]
    except BaseException:  # out of memory
        if was_on and was_on[0]:
            gc.enable()
        raise
    return found

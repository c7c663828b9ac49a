"""Another thread's stack, taken in one piece.

Python makes frame objects when somebody asks for them. In 3.11 making one may start a garbage collection in the asking
thread, in the middle of the interpreter's walk through another thread's frames; a finalizer that waits (a DataLoader's
that ends its workers) then lets that thread run on. The walk goes on in frames that are no more, or with the lock of
the list of threads held, which ends in a deadlock (CPython issue 106883). So there all frame objects of the stack are
made with the collector at rest, by C code alone: between its calls no other thread gets a turn, and nobody sees the
collector's switch in another position than their own. Elsewhere no collection starts there: 3.10 has all frame objects
made, from 3.12 on collections wait for the end of the running operation.
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
"""Frames of a stack at most."""
LOOKED_THROUGH: Final = 200
"""Frames in which something is looked for."""
_COLLECTS: Final = sys.version_info[:2] == (3, 11)


def stack_of(thread: int) -> list[FrameType]:
    """The frames of a thread, innermost first; empty if there is no such thread.

    As long as the list is held, a walk by `f_back` makes no frames, but where a generator was resumed meanwhile.

    Args:
        thread: its `threading.get_ident()`.
    """
    return _without_collecting(thread) if _COLLECTS else list(outwards(sys._current_frames().get(thread), DEEPEST))


def outwards(frame: FrameType | None, most: int = LOOKED_THROUGH) -> Iterator[FrameType]:
    """A frame and those that led to it, so many at most."""
    while frame is not None and most > 0:
        yield frame
        frame, most = frame.f_back, most - 1


def _without_collecting(thread: int) -> list[FrameType]:
    """As one call into C: whether the collector is on, off with it, the frames, on again if it was.

    Among the threads' frames is the one of this very function: what remembers them would be a cycle with it.
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

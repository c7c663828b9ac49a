"""A run that SIGTERM ends (a time limit, a preempted job, another rank's failure) leaves its result as well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_set: Final[list[Any]] = []
"""The handlers of those who are inside `before_sigterm`."""


def _put_back() -> None:
    """Python's default in the place of a handler of ours."""
    if signal.getsignal(signal.SIGTERM) in _set:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):  # Windows has none; once, as nothing can be taken off it again
    os.register_at_fork(after_in_child=_put_back)


@contextmanager
def before_sigterm(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` when SIGTERM comes, then dies of it, as Python does by default; the code inside notices nothing.

    A handler that the code sets itself has its way, also where it calls the one that was there before it: Python's
    default would not have run then. A process that is forked meanwhile has the default back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if signal.getsignal(number) is handle:
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            end()
            os.kill(os.getpid(), number)

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    _set.append(handle)
    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        _put_back()
        _set.remove(handle)


@contextmanager
def sigterm_held() -> Iterator[None]:
    """Lets SIGTERM act only after the code inside, such as one that writes a file."""
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            os.kill(os.getpid(), signal.SIGTERM)

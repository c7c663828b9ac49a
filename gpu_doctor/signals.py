"""A run that SIGTERM ends (a time limit, a preempted job, another rank's failure) leaves its result as well."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def before_sigterm(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` when SIGTERM comes, then dies of it, as Python does by default; the code inside notices nothing.

    A handler that the code sets itself has its way, also where it calls the one that was there before it: Python's
    default would not have run then. A process that is forked meanwhile has the default back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ours() -> bool:
        return signal.getsignal(signal.SIGTERM) is handle

    def handle(number: int, frame: FrameType | None) -> None:
        if ours():
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
            end()
            os.kill(os.getpid(), number)

    def put_back() -> None:
        if ours():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, handle)
        if hasattr(os, "register_at_fork"):  # Windows has none
            os.register_at_fork(after_in_child=put_back)
    try:
        yield
    finally:
        put_back()


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

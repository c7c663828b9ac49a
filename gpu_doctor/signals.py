"""Handles SIGTERM, so that a run ended by a time limit, a preempted job or another rank's failure saves its result."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_handlers: Final[list[Any]] = []
"""Handlers installed by `before_sigterm` whose code is still running."""


def _restore_default() -> None:
    """Restores Python's default if the current handler is one of ours."""
    if signal.getsignal(signal.SIGTERM) in _handlers:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if hasattr(os, "register_at_fork"):  # missing on Windows; at import, because it cannot be unregistered
    os.register_at_fork(after_in_child=_restore_default)


@contextmanager
def before_sigterm(end: Callable[[], None]) -> Iterator[None]:
    """Calls `end` on SIGTERM during the code inside, then ends the process by the signal, as Python does by default.

    A handler that the code sets itself takes precedence. If it calls the previous handler, ours does nothing, because
    Python's default would not have run either. A process forked by the code gets Python's default back.
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
    _handlers.append(handle)
    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        _restore_default()
        _handlers.remove(handle)


@contextmanager
def sigterm_held() -> Iterator[None]:
    """Delays SIGTERM until the code inside has ended, such as code that writes a file."""
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

"""Optimizers that step during the backward pass, on autograd's thread.

"Optimizer in backward" steps in a hook of every parameter as soon as its gradient is there. On a CPU the thread that
called `backward` runs the hooks; a CUDA device has a thread of autograd's for that, while the one that called waits.
What steps there is the training thread's work and no other training loop: it is kept here, and noted when the backward
ends, by the thread that alone writes to the log. On the device's clock it stays a part of the backward.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from threading import get_ident
from types import FrameType
from typing import Any

import torch

_graph_task: Callable[[], int] = torch._C._current_graph_task_id
"""Number of the backward pass that this thread works for, -1 for none."""


def on_autograds_thread() -> bool:
    """Whether autograd made the calling thread and has it work for a backward pass that another thread called.

    Such a thread begins in a hook or in a function's `backward`; those that Python made begin in their `run`.
    """
    if _graph_task() == -1 or get_ident() == threading.main_thread().ident:
        return False
    frame: FrameType = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename != threading.__file__


def covered_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Nanoseconds that lie in one of the spans at least: the threads of two devices step side by side."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0)
        until = max(until, end)
    return total


class StepsInBackward:
    """Steps of optimizers on autograd's threads, since the backward that runs now began."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock`: of the host, ns."""
        self._clock = clock
        self._begun: dict[int, list[int]] = {}
        """By thread, when its open steps began: that of a wrapper has another inside."""
        self.done: list[tuple[Any, int, int]] = []
        """Optimizer, begin and end: appended to on any thread, taken by the training thread."""

    def begin(self, within: bool) -> None:
        """A step begins on the calling thread; `within`: inside of another one."""
        open_steps = self._begun.setdefault(get_ident(), [])
        if not within:
            open_steps.clear()  # of one that raised
        open_steps.append(self._clock())

    def end(self, optimizer: Any) -> None:
        """The newest open step of the calling thread has ended, if it has one."""
        if open_steps := self._begun.get(get_ident()):
            begin = open_steps.pop()
            if not open_steps:
                self.done.append((optimizer, begin, self._clock()))

    def taken(self) -> tuple[list[Any], int]:
        """The optimizers that have stepped, each once, and the nanoseconds that they took; none is kept."""
        done, self.done = self.done, []
        optimizers = {id(optimizer): optimizer for optimizer, _, _ in done}
        return list(optimizers.values()), covered_ns((begin, end) for _, begin, end in done)

"""Runs a cell's top-level `await` to its end on the kernel's own event loop, from within a call on that loop.

A magic is called like a function, so the kernel cannot await what it returns. The loop is turned from here instead
until the cell's task is done: sessions, locks and tasks that earlier cells made on the loop go on working, which they
would not on another one. Since the kernel waits for this cell, no other cell begins meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


def awaited(coroutine: Coroutine[Any, Any, Any], elsewhere: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    """What a coroutine returns, run on this thread's running loop.

    Args:
        coroutine: the cell's.
        elsewhere: runs it where no loop runs here, or one that cannot be turned from within (not asyncio's own).
    """
    __tracebackhide__ = True
    loop: Any = asyncio._get_running_loop()
    if loop is None:
        return elsewhere(coroutine)
    if not hasattr(loop, "_run_once") or not hasattr(loop, "_ready"):
        return _on_a_loop_of_its_own(coroutine)
    task = loop.create_task(coroutine)
    with _stepped_out(loop), _as_many_left(loop):
        try:
            _turned(loop, task)
        except BaseException as interrupt:
            raise interrupt.with_traceback(_where_it_waited(loop, task)) from None
    return task.result()


def _turned(loop: Any, task: asyncio.Task[Any]) -> None:
    while not task.done():
        loop._run_once()


def _where_it_waited(loop: Any, task: asyncio.Task[Any]) -> TracebackType | None:
    """Ends the cell's task, which an interrupt has found at work or waiting; the lines at which it was."""
    task.cancel()
    _turned(loop, task)
    try:
        task.result()
    except BaseException as ended:
        return ended.__traceback__
    return None


@contextmanager
def _stepped_out(loop: Any) -> Iterator[None]:
    """The task that called us is not the current one while others take their steps."""
    outer = asyncio.current_task(loop)
    if outer is not None:
        tasks._leave_task(loop, outer)
    try:
        yield
    finally:
        if outer is not None:
            tasks._enter_task(loop, outer)


@contextmanager
def _as_many_left(loop: Any) -> Iterator[None]:
    """The turn of the loop that called us has counted its handles: those that were run from here are made up for."""
    counted = len(loop._ready)
    try:
        yield
    finally:
        for _ in range(counted - len(loop._ready)):
            loop.call_soon(_nothing)


def _on_a_loop_of_its_own(coroutine: Coroutine[Any, Any, Any]) -> Any:
    __tracebackhide__ = True
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()
        asyncio._set_running_loop(running)


def _nothing() -> None:
    """A handle that does nothing."""

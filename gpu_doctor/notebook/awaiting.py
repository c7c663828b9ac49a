"""Runs a cell's top-level `await` to its end on the kernel's own event loop, from within a call on that loop.

A magic is called like a function, so the kernel cannot await its result. Instead this module runs iterations of the
loop until the cell's task is done. Sessions, locks and tasks that earlier cells made on the loop keep working, which
they would not on another loop. The kernel waits for this cell, so no other cell begins in the meantime.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


def awaited(coroutine: Coroutine[Any, Any, Any], elsewhere: Callable[[Coroutine[Any, Any, Any]], Any]) -> Any:
    """Runs a coroutine on this thread's running loop and returns its result.

    A running loop that is not asyncio's own cannot be run from within; then the coroutine runs on a new loop.

    Args:
        coroutine: coroutine of the cell.
        elsewhere: runs the coroutine if this thread has no running loop.
    """
    __tracebackhide__ = True
    loop: Any = asyncio._get_running_loop()
    if loop is None:
        return elsewhere(coroutine)
    if not hasattr(loop, "_run_once") or not hasattr(loop, "_ready"):
        return _run_on_new_loop(coroutine)
    task = loop.create_task(coroutine)
    with _without_current_task(loop), _with_ready_count_restored(loop):
        try:
            _run_until_done(loop, task)
        except BaseException as interrupt:
            raise interrupt.with_traceback(_cancelled(loop, task)) from None
    return task.result()


def _run_until_done(loop: Any, task: asyncio.Task[Any]) -> None:
    while not task.done():
        loop._run_once()


def _cancelled(loop: Any, task: asyncio.Task[Any]) -> TracebackType | None:
    """Cancels the cell's task after an interrupt and returns the traceback of the lines where it was."""
    task.cancel()
    _run_until_done(loop, task)
    try:
        task.result()
    except BaseException as ended:
        return ended.__traceback__
    return None


@contextmanager
def _without_current_task(loop: Any) -> Iterator[None]:
    """Makes the task that called us leave the loop, so that other tasks can take their steps."""
    outer = asyncio.current_task(loop)
    if outer is not None:
        tasks._leave_task(loop, outer)
    try:
        yield
    finally:
        if outer is not None:
            tasks._enter_task(loop, outer)


@contextmanager
def _with_ready_count_restored(loop: Any) -> Iterator[None]:
    """Refills the loop's ready queue with empty handles, up to the number it had before.

    The iteration of the loop that called us has counted its handles; those that ran here would be missing.
    """
    counted = len(loop._ready)
    try:
        yield
    finally:
        for _ in range(counted - len(loop._ready)):
            loop.call_soon(_nothing)


def _run_on_new_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
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
    """Does nothing: an empty handle for the loop's ready queue."""

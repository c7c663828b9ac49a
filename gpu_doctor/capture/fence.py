"""The fence between the user's calls and our code around them.

If our code raises, the user's call still happens exactly once, with its own result or exception; then our wrappers come
off, and one note says so. Only two exceptions pass: an interrupt by the user, and `RunEnded`, with which a trial leaves
the loop at its budget. Neither is an `Exception`. After an interrupt of our code some events may be missing: a RESTART
event says so, and the loop starts over with the next event.

Where torch compiles a whole step, it leaves out our wrappers around backwards and optimizers (see `taps/compiler.py`):
these run between its graphs and are recorded. Calls that may be in the middle of a graph are not recorded instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from gpu_doctor.capture.events import RESTART, Log


class Fence:
    """Wraps all calls from the user's threads into our code in one run."""

    def __init__(self, give_up: Callable[[Exception], None], log: Log | None = None) -> None:
        """Args: give_up: takes our wrappers off and leaves a note. log: the run's event log."""
        self._give_up, self._log = give_up, log

    def broke(self, error: BaseException) -> None:
        """Stops recording, as our code raised `error`.

        Raises:
            BaseException: `error`, if it is no Exception.
        """
        if isinstance(error, Exception):
            with suppress(Exception):
                self._give_up(error)
            return
        log = self._log
        if log is not None and not log.ending and get_ident() == log.thread:
            log.note((RESTART, log.clock(), None))
        raise error

    def around(
        self,
        original: Callable[..., Any],
        before: Callable[..., Any],
        after: Callable[[Any, Any], None],
        failed: Callable[[Any, BaseException], None] | None = None,
        *,
        training_thread_only: bool = False,
    ) -> Callable[..., Any]:
        """Returns a wrapper of `original`, with its name and signature, that calls our functions around it.

        Args:
            original: the user's function.
            before: called first, with the same arguments; it returns a token. If that is None, or `before` raises,
                neither `after` nor `failed` is called.
            after: called afterwards with the token and the result.
            failed: called with the token and the exception if `original` raises; without `failed`, `after` is called
                with the token and None.
            training_thread_only: True if calls on other threads go straight to `original`.
        """
        broke, log = self.broke, self._log if training_thread_only else None

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if log is not None and get_ident() != log.thread:
                return original(*args, **kwargs)
            token = None
            try:
                token = before(*args, **kwargs)
            except BaseException as error:
                broke(error)
            if token is None:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as raised:
                try:
                    if failed is None:
                        after(token, None)
                    else:
                        failed(token, raised)
                except BaseException as error:
                    broke(error)
                raise
            try:
                after(token, result)
            except BaseException as error:
                broke(error)
            return result

        return call

    def around_in_graphs(
        self,
        original: Callable[..., Any],
        before: Callable[..., Any],
        after: Callable[[Any, Any], None],
        failed: Callable[[Any, BaseException], None] | None = None,
        *,
        training_thread_only: bool = False,
    ) -> Callable[..., Any]:
        """Returns a wrapper as `around` does, which torch can compile without a break in its graph."""
        from gpu_doctor.capture.graphs import through  # torch, which is not needed to record a run

        return through(
            original, self.around(original, before, after, failed, training_thread_only=training_thread_only)
        )

    def quietly(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a hook for torch to call: an exception in it ends our recording, and nothing else."""

        @functools.wraps(ours)
        def hook(*args: Any, **kwargs: Any) -> Any:
            try:
                return ours(*args, **kwargs)
            except BaseException as error:
                self.broke(error)
                return None

        return hook


class FencedContext:
    """Wraps another's context manager and calls our functions at its begin and end."""

    def __init__(self, fence: Fence, context: Any, begins: Callable[[], Any], ends: Callable[[], None]) -> None:
        """Calls nothing yet.

        Args:
            fence: the run's fence.
            context: the context manager that is wrapped.
            begins: called before the context is entered; if it returns a false value or raises, `ends` is not called.
            ends: called after the context was left, or could not be entered.
        """
        self._fence, self._context, self._begins, self._ends = fence, context, begins, ends
        self._begun = False

    def __enter__(self) -> Any:
        __tracebackhide__ = True
        try:
            self._begun = bool(self._begins())
        except Exception as error:
            self._fence.broke(error)
        try:
            return self._context.__enter__()  # last: an interrupt of our code must not leave it open
        except BaseException:
            self._end()
            raise

    def __exit__(self, *raised: Any) -> Any:
        __tracebackhide__ = True
        try:
            return self._context.__exit__(*raised)  # first, for the same reason
        finally:
            self._end()

    def _end(self) -> None:
        """Calls `ends` once, if `begins` returned a true value."""
        begun, self._begun = self._begun, False
        try:
            if begun:
                self._ends()
        except Exception as error:
            self._fence.broke(error)

"""The fence between the user's calls and our code around them.

Whatever of ours raises, the user's call happens exactly once, with its own result or its own exception; then our
wrappers come off, and one note says so. Only two things pass: an interrupt by the user, and `RunEnded`, by which a
trial leaves the loop at its budget. Neither is an `Exception`. After an interrupt of our code it is not known which
events are missing: one says so, and the loop begins anew with the next.

Where torch compiles a whole step, it leaves out what stands around backwards and optimizers (see `taps/compiler.py`):
these run, and are heard, between its graphs. What may stand in the middle of a graph is let through unheard instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from gpu_doctor.capture.events import RESTART, Log


class Fence:
    """All entries from the user's threads into the code of one run."""

    def __init__(self, give_up: Callable[[Exception], None], log: Log | None = None) -> None:
        """Args: give_up: takes our wrappers off and leaves a note. log: of the run."""
        self._give_up, self._log = give_up, log

    def broke(self, error: BaseException) -> None:
        """Something of ours raised: it is the last that is heard of us.

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
        """A stand-in for `original`, of its name and signature.

        Args:
            original: the user's call.
            before: is given its arguments; what it returns is handed on. None, or an error of its own: nothing is to be
                done afterwards.
            after: is given that, and the result.
            failed: is given that, and the exception; without it `after` is called, with None for the result.
            training_thread_only: calls on other threads go straight to `original`.
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
        """As `around`, of a call that torch may compile with the code around it: its graph stays in one piece."""
        from gpu_doctor.capture.graphs import through  # torch, which is not needed to record a run

        return through(
            original, self.around(original, before, after, failed, training_thread_only=training_thread_only)
        )

    def quietly(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that torch calls: what it raises ends our listening, and nothing else."""

        @functools.wraps(ours)
        def hook(*args: Any, **kwargs: Any) -> Any:
            try:
                return ours(*args, **kwargs)
            except BaseException as error:
                self.broke(error)
                return None

        return hook


class FencedContext:
    """A context manager of somebody else's, from whose entering to whose end something is going on."""

    def __init__(self, fence: Fence, context: Any, begins: Callable[[], Any], ends: Callable[[], None]) -> None:
        """Nothing is called yet.

        Args:
            fence: of the run.
            context: stands in its place.
            begins: called before it is entered; what is false, or an error, says that nothing is to be ended.
            ends: called when it has been left, or could not be entered.
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
            return self._context.__enter__()  # last: an interrupt of what is ours must not leave it open
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
        begun, self._begun = self._begun, False
        try:
            if begun:
                self._ends()
        except Exception as error:
            self._fence.broke(error)

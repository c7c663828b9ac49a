"""The fence between the user's calls and our code around them.

Whatever of ours raises, the user's call happens exactly once, with its own result or its own exception; then our
wrappers come off, and one note says so. Only two things pass: an interrupt by the user, and `RunEnded`, by which a
trial leaves the loop at its budget. Neither is an `Exception`.

Where torch compiles a whole step, it leaves out what stands around backwards and optimizers (see `taps/compiler.py`):
these run, and are heard, between its graphs. What may stand in the middle of a graph is let through unheard instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any

from gpu_doctor.capture.events import Log


class Fence:
    """All entries from the user's threads into the code of one run."""

    def __init__(self, give_up: Callable[[Exception], None], log: Log | None = None) -> None:
        """Args: give_up: takes our wrappers off and leaves a note; what it raises is suppressed. log: of the run."""
        self._give_up, self._log = give_up, log

    def broke(self, error: Exception) -> None:
        """Something of ours raised: it is the last that is heard of us. Who calls it suppresses what it may raise."""
        self._give_up(error)

    def around(
        self,
        original: Callable[..., Any],
        before: Callable[..., Any],
        after: Callable[[Any, Any], None],
        failed: Callable[[Any, BaseException], None] | None = None,
        *,
        anyone: bool = True,
    ) -> Callable[..., Any]:
        """A stand-in for `original`, of its name and signature.

        Args:
            original: the user's call.
            before: is given its arguments; what it returns is handed on. None, or an error of its own: nothing is to be
                done afterwards.
            after: is given that, and the result.
            failed: is given that, and the exception; without it `after` is called, with None for the result.
            anyone: other threads than the training thread are heard too.
        """
        broke, log = self.broke, None if anyone else self._log

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if log is not None and get_ident() != log.thread:
                return original(*args, **kwargs)
            token = None
            try:
                token = before(*args, **kwargs)
            except Exception as error:
                with suppress(Exception):
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
                except Exception as error:
                    with suppress(Exception):
                        broke(error)
                raise
            try:
                after(token, result)
            except Exception as error:
                with suppress(Exception):
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
        anyone: bool = True,
    ) -> Callable[..., Any]:
        """As `around`, of a call that torch may compile with the code around it: its graph stays in one piece."""
        from gpu_doctor.capture.graphs import through  # torch, which is not needed to record a run

        return through(original, self.around(original, before, after, failed, anyone=anyone))

    def quietly(self, ours: Callable[..., Any]) -> Callable[..., Any]:
        """A hook that torch calls: what it raises ends our listening, and nothing else."""

        def hook(*args: Any, **kwargs: Any) -> Any:
            try:
                return ours(*args, **kwargs)
            except Exception as error:
                with suppress(Exception):
                    self.broke(error)
                return None

        return hook

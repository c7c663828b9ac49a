"""Notes every compilation of torch.compile in the run: when, for how long, of which function, and torch's own reason.

torch calls back when a compilation begins and ends, which gives the seconds on our clock, and keeps a record of its
last ones, which gives the function and why the versions that it had did not fit. Both are private names: where one is
missing, nothing is said of compilations.
"""

from __future__ import annotations

import linecache
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Compilation

MOST: Final = 512
"""Compilations kept; torch itself stops at 256 versions of a function (`accumulated_recompile_limit`)."""
LONGEST: Final = 160
"""Characters kept of a reason."""
_GIVEN_UP: Final = "recompile limit exceeded"
"""In the record of the compilation that torch refused: the function runs as it is written from then on."""
_AUTOGRAD: Final = "LAZY_BACKWARD"
"""A backward is compiled when it first runs: on a GPU by autograd's own thread, for which the loop waits."""
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


class CompileBook:
    """What was compiled while a run went on. torch calls `begins` and `ends`; `found` may be asked on any thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._zero_us = time.time_ns() // 1000 - round(recorder.elapsed_s() * 1e6)
        self._open: float | None = None
        self._spans: list[tuple[str, float, float]] = []
        self._records: dict[int, Any] = {}
        """torch's own, by the time at which they begin: it keeps the last 64."""
        self.told = True
        """Whether torch has the names from which all this is read."""

    def begins(self, asked: Any) -> None:
        """A compilation begins; what is compiled inside of it is part of it."""
        self._gather()
        loops = get_ident() == self._recorder.thread or asked.callback_trigger.name == _AUTOGRAD
        self._open = self._recorder.elapsed_s() if loops else None

    def ends(self, asked: Any) -> None:
        """It has ended."""
        begin_s, self._open = self._open, None
        if begin_s is not None and len(self._spans) < MOST:
            self._spans.append((str(asked.compile_id), begin_s, self._recorder.elapsed_s()))

    def found(self) -> tuple[Compilation, ...] | None:
        """All so far, oldest first; None where torch does not tell, or its records are of another kind."""
        try:
            return self._found() if self.told else None
        except (AttributeError, TypeError, ValueError):
            self.told = False
            return None

    def _found(self) -> tuple[Compilation, ...]:
        self._gather()
        spans: dict[str, tuple[float, float]] = {}
        for key, begin_s, end_s in self._spans.copy():
            first_s, spent_s = spans.get(key, (begin_s, 0.0))
            spans[key] = first_s, spent_s + end_s - begin_s
        functions: dict[str, Any] = {}
        found = []
        for _, record in sorted(self._records.copy().items()):
            key, given_up = str(record.compile_id), _GIVEN_UP in str(record.fail_reason)
            if record.co_name:
                functions[_function(key)] = record
            if given_up or (record.co_name and key in spans):
                at_s, spent_s = spans.get(key, ((record.start_time_us - self._zero_us) * 1e-6, 0.0))
                found.append(_compilation(record, functions.get(_function(key), record), at_s, spent_s, given_up))
        return tuple(found)

    def _gather(self) -> None:
        torchs = sys.modules.get("torch._dynamo.utils")
        for one in () if torchs is None else torchs.get_compilation_metrics():
            if (one.start_time_us or 0) >= self._zero_us and len(self._records) < 2 * MOST:
                self._records[one.start_time_us] = one


def _function(compile_id: str) -> str:
    """`3` of `3/7`: the seventh version of the third function."""
    return compile_id.rpartition("/")[0]


def _compilation(record: Any, function: Any, at_s: float, spent_s: float, given_up: bool) -> Compilation:
    """What torch's record says, in plain values; one of a refusal does not name the function, `function` does."""
    reason = str(record.recompile_reason or "")
    places = list(_FRAME.finditer(reason))
    file, line = (places[-1]["file"], int(places[-1]["line"])) if places else ("", 0)
    return Compilation(
        function=str(function.co_name or ""),
        file=str(function.co_filename or ""),
        line=int(function.co_firstlineno or 0),
        at_s=at_s,
        wall_s=spent_s,
        reason=_guard(reason),
        guard_line=line,
        guard_text=linecache.getline(file, line).strip(),
        given_up=given_up,
    )


def _guard(reason: str) -> str:
    """`self.epoch == 7` of torch's reason, which goes on with the number of the version, the line and a hint."""
    first = reason.split("\n", 1)[0]
    said = first.split(": ", 1)[-1].partition("  #")[0]
    return " ".join(said.split())[:LONGEST]


def hear(scope: TapScope, book: CompileBook) -> None:
    """Listens to the compiler, which is there now; again where `torch._dynamo.reset()` has taken us off."""
    try:
        _ = sys.modules["torch._dynamo.callback"].CallbackArgs  # older ones call back with nothing
        book.found()
        around_compiling(scope, book.begins, book.ends)
    except Exception:
        book.told = False


def around_compiling(scope: TapScope, begins: Callable[..., None], ends: Callable[..., None]) -> None:
    """Has two functions called before the compiler reads code and after it, unless they are already."""
    handler = sys.modules["torch._dynamo"].callback_handler
    for calls, ours in ((handler.start_callbacks, begins), (handler.end_callbacks, ends)):
        if not any(getattr(one, "__wrapped__", None) == ours for one in calls):
            _put(scope, calls, scope.recorder.fence.quietly(ours))


def _put(scope: TapScope, calls: list[Any], call: Callable[..., Any]) -> None:
    def remove() -> None:
        with suppress(ValueError):  # a reset has taken it off
            calls.remove(call)

    scope.patches.hook("compilations", remove)
    calls.append(call)

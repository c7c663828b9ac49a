"""Reads the compilations of torch.compile from torch's own records: the time, duration, function and reason of each.

torch stores a record of each of its latest compilations. They are read as steps end and once more when the run ends;
the compiler is not patched. The names used here are private to torch: if one is missing, no compilations are reported.
"""

from __future__ import annotations

import linecache
import re
import sys
import time
from dataclasses import replace
from typing import Any, Final

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import Compilation

MOST: Final = 1024
"""Maximum number of records, one for each forward or backward; torch makes at most 256 versions of a function."""
LONGEST: Final = 160
"""Maximum length of a reason, in characters."""
_GIVEN_UP: Final = "recompile limit exceeded"
"""Text in the record of a compilation that torch refused: the function runs uncompiled from then on."""
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


class CompileRecords:
    """torch's records of the compilations in one run; they may be read on any thread."""

    def __init__(self, recorder: Recorder) -> None:
        """Begins without records; those from before the run are left out."""
        self._began_us = time.time_ns() // 1000 - round(recorder.elapsed_s() * 1e6)
        self._records: dict[int, Any] = {}
        """Records by their start time, in us: torch itself stores the last 64."""
        self._readable = True

    def gather(self, _: int = 0) -> None:
        """Stores the records that are new."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None or not self._readable:
            return
        try:
            for record in dynamo.get_compilation_metrics():
                if record.start_time_us >= self._began_us and len(self._records) < MOST:
                    self._records[record.start_time_us] = record
        except (AttributeError, TypeError):
            self._readable = False

    def found(self) -> tuple[Compilation, ...] | None:
        """Returns all compilations so far, oldest first; None if torch stores no records or their form is unknown."""
        self.gather()
        try:
            return self._found() if self._readable else None
        except (AttributeError, TypeError):
            self._readable = False
            return None

    def _found(self) -> tuple[Compilation, ...]:
        """Converts the records; a backward's, which torch compiles when it first runs, is added to its forward's."""
        found: list[Compilation] = []
        latest: dict[str, int] = {}
        functions: dict[str, Any] = {}
        for _, record in sorted(self._records.copy().items()):
            key, spent_s = str(record.compile_id), record.duration_us * 1e-6
            given_up = _GIVEN_UP in str(record.fail_reason)
            if not (record.co_name or given_up):
                if (at := latest.get(key)) is not None:
                    found[at] = replace(found[at], wall_s=found[at].wall_s + spent_s)
                continue
            function = functions.get(_function(key), record) if given_up else record
            functions[_function(key)], latest[key] = function, len(found)
            at_s = (record.start_time_us - self._began_us) * 1e-6
            found.append(_compilation(record, function, at_s, spent_s, given_up))
        return tuple(found)


def _function(compile_id: str) -> str:
    """Returns the function's number in a compile id: `3` of `3/7`, the seventh version of the third function."""
    return compile_id.rpartition("/")[0]


def _compilation(record: Any, function: Any, at_s: float, spent_s: float, given_up: bool) -> Compilation:
    """Converts a record of torch to plain values.

    Args:
        record: The record.
        function: The record that names the function: an earlier one if this is a refusal, which names none.
        at_s: Start of the compilation since the run began, in s.
        spent_s: Duration, in s.
        given_up: True if torch refused to compile the function again.
    """
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
    """Returns the guard that failed, such as `self.epoch == 7`, without the version, the line and the hint."""
    first = reason.split("\n", 1)[0]
    guard = first.split(": ", 1)[-1].partition("  #")[0]
    return " ".join(guard.split())[:LONGEST]


def tap(scope: TapScope) -> None:
    """Adds the fact `compilations` to the setup."""
    records = CompileRecords(scope.recorder)
    scope.recorder.listeners.on_steps(records.gather)
    scope.add_fact("compilations", records.found, lambda: scope.recorder.listeners.off_steps(records.gather))

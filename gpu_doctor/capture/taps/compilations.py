"""Reads every compilation of torch.compile off torch's own records: when, for how long, of which function, and why.

torch keeps a record of each of its last compilations. They are read when steps have ended and once more when the run
has; the compiler is not patched. The names are private: where one is missing, nothing is said of compilations.
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
"""Records kept, one a forward or backward; torch makes at most 256 versions of a function."""
LONGEST: Final = 160
"""Characters kept of a reason."""
_GIVEN_UP: Final = "recompile limit exceeded"
"""In the record of the compilation that torch refused: the function runs as it is written from then on."""
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


class CompileRecords:
    """torch's records of what was compiled while a run went on; they may be read on any thread."""

    def __init__(self, recorder: Recorder) -> None:
        """Reads nothing yet."""
        self._began_us = time.time_ns() // 1000 - round(recorder.elapsed_s() * 1e6)
        self._records: dict[int, Any] = {}
        """By the time at which they begin: torch keeps the last 64."""
        self._readable = True

    def gather(self, _: int = 0) -> None:
        """Keeps the records that are new."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        if dynamo is None or not self._readable:
            return
        try:
            for one in dynamo.get_compilation_metrics():
                if one.start_time_us >= self._began_us and len(self._records) < MOST:
                    self._records[one.start_time_us] = one
        except (AttributeError, TypeError):
            self._readable = False

    def found(self) -> tuple[Compilation, ...] | None:
        """All so far, oldest first; None where torch keeps no records, or they are of another kind."""
        self.gather()
        try:
            return self._found() if self._readable else None
        except (AttributeError, TypeError):
            self._readable = False
            return None

    def _found(self) -> tuple[Compilation, ...]:
        """The record of a backward, which torch compiles when it first runs, is added to its forward's."""
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
    """`3` of `3/7`: the seventh version of the third function."""
    return compile_id.rpartition("/")[0]


def _compilation(record: Any, function: Any, at_s: float, spent_s: float, given_up: bool) -> Compilation:
    """Torch's record in plain values; the record of a refusal does not name the function, `function` does."""
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


def tap(scope: TapScope) -> None:
    """Fact `compilations` of the setup."""
    records = CompileRecords(scope.recorder)
    scope.recorder.listeners.hear_steps(records.gather)
    scope.add_fact("compilations", records.found, lambda: scope.recorder.listeners.hear_no_steps(records.gather))

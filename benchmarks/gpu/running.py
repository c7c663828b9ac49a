"""Runs the parts that are left, each in a process of its own that is ended when its time is over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu.kept import CUT_OFF, DONE, FAILED, RUNNING, ended_by_force, read, same_machine
from benchmarks.gpu.plan import Part

ROOT: Final = Path(__file__).parents[2]
GRACE_S: Final = 20.0
"""A part whose time is over ends by itself after the row at hand; so much later it is ended."""
TOLD_LINES: Final = 15
"""Of what a process said before it died."""


@dataclass
class Call:
    """One call of the proof: where it writes, on what machine, how long it may take."""

    out: Path
    machine: Mapping[str, Any]
    rehearse: bool
    ends: float
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Callable[[], float] = time.monotonic

    def status(self, part: Part) -> str:
        """How a part stands: empty if it never began on this machine."""
        found = read(self.out, part.name)
        return str(found.get("status", "")) if found and same_machine(found, self.machine) else ""

    def fits(self, part: Part) -> bool:
        """Whether there is time for it, should it need all that it may take."""
        return part.limit_s(self.rehearse) + GRACE_S <= self.ends - self.clock()


def in_turn(parts: Sequence[Part], call: Call) -> list[Part]:
    """The parts that are not done: first those that have not begun, then those that were cut off or failed."""
    open_ones = [one for one in parts if call.status(one) != DONE]
    return sorted(open_ones, key=lambda one: call.status(one) != "")


def run(parts: Sequence[Part], call: Call, start: Callable[[Part, Call], str] | None = None) -> list[Part]:
    """Runs what is left and fits; returns what is still not done for want of time."""
    start = start or started
    late = []
    for part in in_turn(parts, call):
        if not call.fits(part):
            late.append(part)
            continue
        print(f"\n=== {part.name}: {part.holds}", flush=True)
        status = start(part, call)
        print(f"=== {part.name}: {status}, {read(call.out, part.name).get('seconds', 0.0):.0f} s", flush=True)
        if status == CUT_OFF:
            late.append(part)
    return late


def started(part: Part, call: Call) -> str:
    """Runs one part to its end, or to the end of its time; returns its status."""
    limit_s = part.limit_s(call.rehearse)
    words = [sys.executable, "-m", "benchmarks.gpu.one_part", part.name, "--out", str(call.out)]
    words += ["--seconds", str(limit_s), "--machine", json.dumps(dict(call.machine))]
    words += ["--rehearse"] if call.rehearse else []
    log = call.out / "logs" / f"{part.name}.txt"
    code = ended(words, log, limit_s + GRACE_S, call.environment)
    status = call.status(part)
    if status not in (DONE, FAILED, CUT_OFF) or code is None:
        told = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TOLD_LINES:]
        why = "its time was over" if code is None else f"its process ended with {code}"
        status = CUT_OFF if code is None and status == RUNNING else FAILED
        ended_by_force(call.out, part.name, call.machine, status, "\n".join([why, *told]))
    return status


def ended(words: Sequence[str], log: Path, limit_s: float, environment: Mapping[str, str]) -> int | None:
    """Runs a command, what it says into a file; its exit status, None where it was ended with all that it had begun."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as said:
        process = subprocess.Popen(
            words, cwd=ROOT, env=dict(environment), stdout=said, stderr=said, start_new_session=True
        )
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):  # its workers too, and where Ctrl-C came
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

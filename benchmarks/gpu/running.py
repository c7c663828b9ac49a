"""Runs the blocks of a call, each in a process of its own that is ended when its time is over."""

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

from benchmarks.gpu.archive import gathered
from benchmarks.gpu.kept import CUT_OFF, DONE, FAILED, Stage, add, read, settled
from benchmarks.gpu.plan import AGAIN_S, BLOCKS, REHEARSED, Block, named

ROOT: Final = Path(__file__).parents[2]
GRACE_S: Final = 3.0
"""A block knows its end and comes to it by itself; so much later it is ended."""
LEAST_S: Final = 8.0
"""Nothing begins with less left: a process imports torch first."""


@dataclass
class Call:
    """Holds where a call of the proof writes, on what machine, and when it ends."""

    out: Path
    work: Path
    """Blocks leave files here, which are gathered after each."""
    machine: Mapping[str, Any]
    ends: float
    """Its clock reads this then."""
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    clock: Callable[[], float] = time.monotonic

    @property
    def rehearse(self) -> bool:
        """Tells whether no card takes part."""
        return bool(self.machine.get("simulated"))

    def done(self, block: Block) -> bool:
        """Tells whether a block has come to its end on this machine."""
        return str(read(self.out, self.machine).get(block.name, {}).get("status")) == DONE

    def missed(self, block: Block) -> bool:
        """Tells whether a block began on this machine and a row failed, missed its aim or was not found."""
        found = read(self.out, self.machine).get(block.name)
        return found is not None and (found["status"] != DONE or not all(map(settled, found["rows"].values())))


def due(call: Call, number: int | None) -> list[tuple[Block, float]]:
    """Lists the blocks that a call runs, in order, and how long each may take.

    Args:
        number: of the call. The second begins with what failed in the first. None: all that is not done.
    """
    again = [one for one in BLOCKS if number == 2 and one.call == 1 and call.missed(one)]
    found = [(one, min(one.seconds, AGAIN_S / len(again))) for one in again]
    found += [(one, one.seconds) for one in BLOCKS if number in (None, one.call) and not call.done(one)]
    return [(one, seconds * (REHEARSED if call.rehearse else 1.0)) for one, seconds in found]


def run(
    blocks: Sequence[tuple[Block, float]], call: Call, start: Callable[[Block, Call, float], str] | None = None
) -> list[str]:
    """Runs blocks with the time that is left for each; returns the names of those that are not done for want of it."""
    start, late = start or started, []
    for block, limit_s in blocks:
        left = call.ends - call.clock()
        if left < LEAST_S:
            late.append(block.name)
            continue
        limit_s = min(limit_s, left - GRACE_S)
        print(f"\n=== {block.name}, {limit_s:.0f} s at most: {block.holds}", flush=True)
        began = call.clock()
        status = start(block, call, limit_s)
        took = call.clock() - began
        add(call.out, {"block": block.name, "status": status, "seconds": round(took, 1)})
        print(f"=== {block.name}: {status}, {took:.0f} s", flush=True)
        if status == CUT_OFF:
            late.append(block.name)
    return late


def started(block: Block, call: Call, limit_s: float) -> str:
    """Runs one block to its end, or to the end of its time; returns its status."""
    asked = {"block": block.name, "out": str(call.out), "work": str(call.work), "seconds": limit_s}
    words = [call.python, "-m", "benchmarks.gpu.running", json.dumps({**asked, "machine": dict(call.machine)})]
    code = ended(words, call.out / "log.txt", limit_s + GRACE_S, call.environment)
    gathered(call.work, call.out)
    return CUT_OFF if code is None else {0: DONE, 2: CUT_OFF}.get(code, FAILED)


def ended(words: Sequence[str], log: Path, limit_s: float, environment: Mapping[str, str]) -> int | None:
    """Runs a command, writing what it says to a file; returns its status, None where it was ended with all it began."""
    with log.open("a", encoding="utf-8") as said:
        process = subprocess.Popen(
            words, cwd=ROOT, env=dict(environment), stdout=said, stderr=said, start_new_session=True
        )
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            for one in (*_descendants(process.pid), process.pid):  # kernels too, which lead groups of their own
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(one, signal.SIGKILL)
            process.wait()


def _descendants(process: int) -> list[int]:
    """Lists what a process began, as far as the system tells."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(path.parent.name)] = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def main(asked: Mapping[str, Any]) -> int:
    """Runs one block in this process; 0 = done, 1 = failed, 2 = its time was over."""
    began = time.monotonic()
    from benchmarks.gpu.device import device  # imports torch, which the call itself does not need

    block, machine = named(asked["block"]), asked["machine"]
    with device(bool(machine.get("simulated"))) as name:
        left = asked["seconds"] - (time.monotonic() - began)
        stage = Stage(block.name, Path(asked["out"]), machine, left, Path(asked["work"]), name)
        block.run(stage)
    return {DONE: 0, CUT_OFF: 2}.get(stage.status(), 1)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

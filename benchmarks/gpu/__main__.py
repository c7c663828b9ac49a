"""Proves on one NVIDIA GPU what was only simulated, in two calls: `python -m benchmarks.gpu`, or `make gpu`.

It installs nothing and changes no setting of the machine. Each block runs in a process of its own, and each row is kept
as soon as it is found: a later call goes on where the first one ended. `--rehearse` runs all of it without a GPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.gpu import archive, running, wheels
from benchmarks.gpu.kept import NAME, add, read
from benchmarks.gpu.machine import facts
from benchmarks.gpu.plan import BLOCKS, CALL_S, END_S, REHEARSED
from benchmarks.gpu.table import heading, summary

OUT: Final = Path(__file__).with_name("out")


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the options."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    names = ", ".join(one.name for one in BLOCKS)
    found.add_argument("blocks", nargs="*", metavar="BLOCK", help=f"only these, whatever the call: {names}")
    found.add_argument("--call", type=int, choices=sorted(CALL_S), help="default: what is not done yet of both")
    found.add_argument("--minutes", type=float, default=float("inf"), help="take no longer")
    found.add_argument("--out", type=Path, help="where to write; default benchmarks/gpu/out")
    found.add_argument("--rehearse", action="store_true", help="without a GPU, on a simulated one")
    found.add_argument("--anew", action="store_true", help="forget what earlier calls have found")
    return found


def main(words: Sequence[str]) -> int:
    """Runs what is due; returns 1 where a block failed, nothing could begin, or a rehearsal did not end."""
    began, options = time.monotonic(), parser()
    asked = options.parse_args(words)
    if unknown := set(asked.blocks) - {one.name for one in BLOCKS}:
        options.error(f"no block is called {', '.join(sorted(unknown))}")
    found = facts(asked.rehearse)
    if found["why_not"]:
        print(found["why_not"], file=sys.stderr)
        return 1
    usual = OUT / "simulated" if asked.rehearse else OUT
    out = (asked.out or usual).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if asked.anew:
        archive.forget(out)
    else:
        archive.resumed(out, usual)
    whole_s = sum(CALL_S.values()) if asked.call is None else CALL_S[asked.call]
    ends = began + min(60.0 * asked.minutes, whole_s * (REHEARSED if asked.rehearse else 1.0)) - END_S
    with tempfile.TemporaryDirectory(prefix="gpu-proof-") as folder:
        python, said = wheels.environment(Path(folder) / "python")
        print(f"{'SIMULATED, no GPU takes part: ' if asked.rehearse else ''}{heading(found)}\n{said}", flush=True)
        work = Path(folder) / "work"
        work.mkdir()
        add(out, {"machine": found})
        around = {**os.environ, "PYTHONUNBUFFERED": "1"}
        around |= {"OMP_NUM_THREADS": "1"} if asked.rehearse else {}  # tiny operations on a busy machine
        call = running.Call(out, work, found, ends, str(python), around)
        due = [one for one in running.due(call, asked.call) if not asked.blocks or one[0].name in asked.blocks]
        try:
            late = running.run(due, call)
        finally:
            left = archive.leave(out, found)
    print(f"\n{summary(read(out, found))}\n\n{left}, {NAME} beside it; {time.monotonic() - began:.0f} s", flush=True)
    if late:
        print(f"Left for another call: {', '.join(late)}.", flush=True)
    return int(bool(late and asked.rehearse) or any(call.missed(one) for one, _ in due))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was found is still packed
    sys.exit(main(sys.argv[1:]))

"""Proves on one NVIDIA GPU what was only simulated: `python -m benchmarks.gpu`, or `make gpu`.

It installs nothing and changes no setting of the machine. Each part runs in a process of its own and keeps what it
finds: a second call goes on where the first one ended. `--rehearse` runs all of it without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu import archive, running, wheels
from benchmarks.gpu.kept import FAILED, forget
from benchmarks.gpu.plan import PARTS
from benchmarks.gpu.table import heading, summary

OUT: Final = Path(__file__).with_name("out")
END_S: Final = 5.0
"""Kept of a call's time to write the archive."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    names = [one.name for one in PARTS]
    found.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(names)}")
    found.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that does not fit into them")
    found.add_argument("--out", type=Path, help="where to write; default benchmarks/gpu/out")
    found.add_argument("--rehearse", action="store_true", help="without a GPU, on a simulated one")
    found.add_argument("--anew", action="store_true", help="forget what earlier calls have found of these parts")
    return found


def environment(out: Path) -> tuple[dict[str, str], str]:
    """The parts' environment, with what this Python lacks on its path; and a sentence on that, if anything."""
    site = out / "site-packages"  # known by that name to be no code of the user's
    found, lacking = wheels.unpacked(wheels.missing(), site)
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), str(site) if site.exists() else "")))
    said = f"Taken from the wheels carried along: {', '.join(found)}. " if found else ""
    if lacking:
        said += f"This Python lacks {', '.join(lacking)}: `make gpu-wheels` on a machine with a registry gets them."
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}, said.strip()


def machine(rehearse: bool, around: dict[str, str]) -> dict[str, Any]:
    """What this machine is, as a process of its own found: no context of ours lies on the card meanwhile."""
    words = [sys.executable, "-m", "benchmarks.gpu.machine", *(["--rehearse"] if rehearse else [])]
    done = subprocess.run(words, cwd=running.ROOT, env=around, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {"why_not": f"torch could not be asked what it sees: {done.stderr.strip()[-2000:]}"}


def main(words: Sequence[str]) -> int:
    """Runs what is left; 1 where a part failed or none could begin, or a whole rehearsal has not come to its end."""
    began, options = time.monotonic(), parser()
    asked = options.parse_args(words)
    if unknown := set(asked.parts) - {one.name for one in PARTS}:
        options.error(f"no part is called {', '.join(sorted(unknown))}")
    out = (asked.out or (OUT / "simulated" if asked.rehearse else OUT)).resolve()
    out.mkdir(parents=True, exist_ok=True)
    around, said = environment(out)
    if asked.rehearse:
        around["OMP_NUM_THREADS"] = "1"  # tiny operations, and threads that wait for each other on a busy machine
    found = machine(asked.rehearse, around)
    if found.get("why_not"):
        print(found["why_not"], file=sys.stderr)
        return 1
    print(f"{'SIMULATED, no GPU takes part: ' if asked.rehearse else ''}{heading(found)}\n{said}".strip(), flush=True)
    parts = [one for one in PARTS if not asked.parts or one.name in asked.parts]
    archive.taken_up(out, PARTS)
    if asked.anew:
        forget(out, tuple(one.name for one in parts))
    call = running.Call(out, found, asked.rehearse, began + 60.0 * asked.minutes - END_S, around)
    try:
        late = running.run(parts, call)
    finally:
        left = archive.leave(out, found, PARTS)
    print(f"\n{summary(archive.kept(out, found, PARTS), PARTS)}\n\n{left}", flush=True)
    if late:
        print(f"Left for another call: {', '.join(one.name for one in late)}.", flush=True)
    incomplete = bool(late) and asked.rehearse and asked.minutes == float("inf")
    return int(incomplete or any(call.status(one) == FAILED for one in parts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

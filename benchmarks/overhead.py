"""What watching a training loop costs: gpu_doctor, torch.profiler, gpuprof and TraceML beside the bare loop.

    .venv-bench/bin/python -m benchmarks.overhead        # about 10 minutes; benchmarks/README.md has the set-up
    .venv/bin/python -m benchmarks.overhead --ours       # gpu_doctor alone

All tools that can be taken off again run in turn in one process (bare, A, B, C, bare, A, B, C, ...). TraceML stays in a
process for good, so it gets one of its own between two of these. A tool's figure is the median over all turns of its
microseconds a step minus those of the bare loop in the same turn, on the wall and of the CPU (of all threads of the
process): on a machine with other work to do only the CPU's is worth something.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.contenders import (
    BARE,
    BUSY,
    DEEP,
    GPUPROF,
    MLP,
    OFF,
    ON,
    PROFILER,
    TRACEML,
    batch_for,
    busy,
    deep,
    mlp,
    train,
)

CONTENDERS = Path(__file__).with_name("contenders.py")
ROOT = CONTENDERS.parents[1]


@dataclass
class Row:
    """One tool on one loop, all turns: (wall, CPU) microseconds a step of the bare loop and of the watched one."""

    loop: str
    tool: str
    bare_us: list[tuple[float, float]]
    us: list[tuple[float, float]]

    def over(self, clock: int) -> list[float]:
        """Microseconds a step over the bare loop of the same turn, ascending; `clock`: 0 = wall, 1 = CPU."""
        return sorted(one[clock] - bare[clock] for one, bare in zip(self.us, self.bare_us, strict=True))

    def line(self) -> str:
        """The row of the table."""
        said = f"{self.tool:<24}"
        for clock in (0, 1):
            over = self.over(clock)
            quarter = len(over) // 4
            said += f"{statistics.median(over):>10.1f}{over[quarter]:>9.1f}{over[-1 - quarter]:>9.1f}"
            bare = statistics.median(one[clock] for one in self.bare_us)
            said += f"{1 + statistics.median(over) / bare:>7.3f}"
        return f"{said}{len(self.us):>7}"


HEAD = f"{'':<24}" + "".join(
    f"{f'{clock} us':>10}{'low 25%':>9}{'high 25%':>9}{'ratio':>7}" for clock in ("wall", "CPU")
)


def bare_steps_s(batch: int) -> dict[str, float]:
    """Seconds of a bare step of every loop, roughly."""
    loops = {MLP: mlp(), DEEP: deep(), BUSY: busy(batch)}
    return {name: min(train(loop, 5, 40).wall_s for _ in range(3)) for name, loop in loops.items()}


def child(tools: list[str], options: argparse.Namespace, repeats: int) -> list[tuple[str, str, float, float]]:
    """Measures some tools in a fresh process; TraceML is started by its own launcher.

    Raises:
        RuntimeError: with the end of what the process said, if it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        args = [str(result), "--tools", ";".join(tools), "--steps-s", json.dumps(options.steps_s)]
        args += ["--batch", str(options.batch), "--seconds", str(options.seconds), "--warm", str(options.warm)]
        args += ["--repeats", str(repeats)]
        command = [sys.executable, str(CONTENDERS), *args]
        if TRACEML in tools:
            launcher = Path(sys.executable).with_name("traceml")
            command = [str(launcher), "run", str(CONTENDERS), "--logs-dir", f"{folder}/logs", "--args", *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": folder}
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
        if not result.exists():
            raise RuntimeError(f"{tools} failed:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        return [tuple(one) for one in json.loads(result.read_text())]


def measured(tools: list[str], options: argparse.Namespace) -> list[Row]:
    """All rows: rounds of one shared process and, where it is asked for, one of TraceML."""
    bare: dict[str, list[tuple[float, float]]] = defaultdict(list)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for number in range(options.rounds):
        for names in ([one for one in tools if one != TRACEML], [one for one in tools if one == TRACEML]):
            for loop, tool, wall_s, cpu_s in child(names, options, options.repeats) if names else ():
                (bare[loop] if tool == BARE else found[loop, tool]).append((wall_s * 1e6, cpu_s * 1e6))
        print(f"  round {number + 1} of {options.rounds}", file=sys.stderr)
    return [Row(loop, tool, bare[loop], us) for (loop, tool), us in found.items()]


def contenders(ours: bool) -> list[str]:
    """The tools that can be measured here, the bare loop first; what is missing is said."""
    names = [BARE, OFF, ON]
    if ours:
        return names
    names.append(PROFILER)
    if importlib.util.find_spec("gpuprof"):
        names.append(GPUPROF)
    if importlib.util.find_spec("traceml_ai") and shutil.which(str(Path(sys.executable).with_name("traceml"))):
        names.append(TRACEML)
    for name in {GPUPROF, TRACEML} - set(names):
        print(f"{name} is not installed here and is left out (benchmarks/README.md says how to install it).")
    return names


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ours", action="store_true", help="gpu_doctor alone")
    options.add_argument("--rounds", type=int, default=3, help="fresh processes of every kind")
    options.add_argument("--repeats", type=int, default=3, help="turns in a process")
    options.add_argument("--seconds", type=float, default=2.0, help="timed part of a segment, in bare seconds")
    options.add_argument("--warm", type=float, default=0.7, help="seconds of warming up before it")
    options.add_argument("--quick", action="store_true", help="one short turn, to see that it runs; no figures to keep")
    options.add_argument("--json", type=Path, help="write all turns to this file")
    return options


def main() -> None:
    """Prints a table a loop."""
    options = parser().parse_args()
    if options.quick:
        options.rounds = options.repeats = 1
        options.seconds, options.warm = 0.1, 0.05
    torch.set_num_threads(1)
    options.batch = batch_for(0.005)
    options.steps_s = bare_steps_s(options.batch)
    rows = measured(contenders(options.ours), options)
    python, load = platform.python_version(), os.getloadavg()[0]
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {python}, torch {torch.__version__}"
    )
    for name in (MLP, DEEP, BUSY):
        mine = [row for row in rows if row.loop == name]
        wall, cpu = (statistics.median(one[clock] for one in mine[0].bare_us) for clock in (0, 1))
        print(f"\n{name}: {wall:.0f} us a step bare ({cpu:.0f} us of CPU)\n{HEAD}")
        for row in mine:
            print(row.line())
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()

"""What watching a training loop costs: gpu_doctor, torch.profiler, gpuprof and TraceML beside the bare loop.

    .venv-bench/bin/python -m benchmarks.overhead        # about 10 minutes; benchmarks/README.md has the set-up
    .venv/bin/python -m benchmarks.overhead --ours       # gpu_doctor alone

The tools take turns (bare, A, B, C, bare, A, B, C, ...). Those that can be taken off again share a process with the
bare loop; TraceML stays in a process for good, so it has one of its own that sleeps while it is not its turn. A tool's
figure is the median over all turns of its microseconds a step minus those of the bare loop in the same turn, on the
wall and of the CPU (of all threads of the process): with other work on the machine, only the CPU's is worth something.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
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
    return {name: min(train(loop, 5, 40).wall_s for _ in range(5)) for name, loop in loops.items()}


class Child:
    """A process in which some tools wait for their turn; TraceML's is started by its own launcher."""

    def __init__(self, tools: list[str], options: argparse.Namespace, folder: Path) -> None:
        self._said = folder / "said.txt"
        listener = Listener(str(folder / "socket"), "AF_UNIX")
        args = [str(folder / "socket"), ";".join(tools), "--batch", str(options.batch)]
        args += ["--steps-s", json.dumps(options.steps_s), "--seconds", str(options.seconds)]
        args += ["--warm", str(options.warm)]
        command = [sys.executable, str(CONTENDERS), *args]
        if TRACEML in tools:
            launcher = Path(sys.executable).with_name("traceml")
            command = [str(launcher), "run", str(CONTENDERS), "--logs-dir", str(folder / "logs"), "--args", *args]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder)}
        with self._said.open("w") as said:
            self._process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=subprocess.STDOUT)
        waiting = threading.Thread(target=self._watch, args=(str(folder / "socket"),), daemon=True)
        waiting.start()
        self._connection = listener.accept()
        listener.close()

    def _watch(self, address: str) -> None:
        """Ends the wait for a child that ended before it called."""
        self._process.wait()
        with contextlib.suppress(OSError):
            Client(address).close()

    def cost_us(self, loop: str, tool: str) -> tuple[float, float]:
        """Wall and CPU microseconds a step of one segment.

        Raises:
            RuntimeError: with the end of what the process said, if it failed.
        """
        try:
            self._connection.send((loop, tool))
            wall_s, cpu_s = self._connection.recv()
        except (EOFError, OSError):
            self._process.wait()
            raise RuntimeError(f"{tool} failed:\n{self._said.read_text()[-4000:]}") from None
        return wall_s * 1e6, cpu_s * 1e6

    def close(self) -> None:
        """Hangs up and waits for the end."""
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.wait()


def measured(tools: list[str], options: argparse.Namespace) -> list[Row]:
    """All rows: bare, A, B, C, bare, A, B, C, ... for each loop, in fresh processes every round."""
    bare: dict[str, list[tuple[float, float]]] = defaultdict(list)
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    groups = [[one for one in tools if one != TRACEML], [one for one in tools if one == TRACEML]]
    for number in range(options.rounds):
        with contextlib.ExitStack() as stack:
            children: dict[str, Child] = {}
            for group in filter(None, groups):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                child = Child(group, options, folder)
                stack.callback(child.close)
                children |= dict.fromkeys(group, child)
            for loop in (MLP, DEEP, BUSY):
                for _ in range(options.repeats):
                    for tool in tools:
                        us = children[tool].cost_us(loop, tool)
                        (bare[loop] if tool == BARE else found[loop, tool]).append(us)
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
    options.add_argument("--repeats", type=int, default=12, help="turns in a process")
    options.add_argument("--seconds", type=float, default=0.5, help="timed part of a segment, in bare seconds")
    options.add_argument("--warm", type=float, default=0.3, help="seconds of warming up before it")
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

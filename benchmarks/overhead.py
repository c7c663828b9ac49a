"""What watching a training loop costs: gpu_doctor, torch.profiler, gpuprof and TraceML over the bare loop.

    .venv-bench/bin/python -m benchmarks.overhead        # about 10 minutes; benchmarks/README.md has the set-up
    .venv/bin/python -m benchmarks.overhead --ours       # gpu_doctor alone, on all programs

The tools take turns (bare, A, B, bare, A, B, ...), each turn a fraction of a second. Those that can be taken off again
share a process with the bare loop; TraceML stays in a process for good, so it has one of its own. A tool's figure is
the median over all turns of its microseconds a step minus those of the bare loop in the same turn; CPU is that of all
threads of the process. With other work on the machine only the CPU's figures are worth something, and the smallest turn
of both sides ("least") more than the median. Beside it stands what gpu_doctor itself says it cost in the same steps.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Client, Listener
from pathlib import Path

import torch

from benchmarks.contenders import (
    BARE,
    BUSY,
    FIRST,
    FIRST_PART,
    GPUPROF,
    LATER_PART,
    MLP,
    OFF,
    ON,
    PROFILER,
    PROGRAMS,
    TRACEML,
    Program,
    Spent,
    batch_for,
    installed,
    step_s,
)

CONTENDERS = Path(__file__).with_name("contenders.py")
ROOT = CONTENDERS.parents[1]
AIMS_US = {MLP: 30.0, "101 Linears": 60.0, f"update by hand{LATER_PART}": 40.0}
"""CPU a step over the bare loop, at most."""
TOLD_FACTOR = 1.3
"""What is told and what it is may differ by so much."""


@dataclass
class Row:
    """One tool on one part of a program, all turns."""

    part: str
    tool: str
    bare: list[Spent]
    spent: list[Spent]

    def over_us(self, clock: str) -> list[float]:
        """Microseconds a step over the bare loop of the same turn, ascending."""
        pairs = zip(self.spent, self.bare, strict=True)
        return sorted((getattr(one, clock) - getattr(bare, clock)) * 1e6 for one, bare in pairs)

    def middle_us(self, clock: str) -> float:
        """The median of `over_us`."""
        return statistics.median(self.over_us(clock))

    def least_us(self, clock: str) -> float:
        """Microseconds a step between the smallest turns of both sides."""
        one, bare = (min(float(getattr(turn, clock)) for turn in turns) for turns in (self.spent, self.bare))
        return (one - bare) * 1e6

    def bare_us(self, clock: str) -> float:
        """Microseconds of a bare step, the median."""
        return statistics.median(float(getattr(turn, clock)) for turn in self.bare) * 1e6

    def told_us(self, what: str) -> float:
        """What gpu_doctor says it cost, microseconds a step, the median; NaN where it says nothing."""
        return statistics.median(float(getattr(turn, what)) for turn in self.spent) * 1e6

    def figures(self) -> list[float]:
        """Those of the table, in the order of `COLUMNS`."""
        cpu, quarter = self.over_us("cpu_s"), len(self.spent) // 4
        told, ours = self.told_us("told_s"), self.told_us("ours_s")
        true = {clock: self.middle_us(clock) for clock in ("cpu_s", "thread_s", "wall_s")}
        ratios = [told / true["cpu_s"], ours / true["thread_s"]]
        return [
            *(self.bare_us("cpu_s"), true["cpu_s"], cpu[quarter], cpu[-1 - quarter], self.least_us("cpu_s")),
            *(true["thread_s"], true["wall_s"], told, ours, *ratios),
        ]

    def line(self) -> str:
        """The row of the table; what was not measured is a dash."""
        figures = (f"{one:>9.{2 if 'of' in name else 1}f}" for name, one in zip(COLUMNS, self.figures(), strict=True))
        return f"{self.part:<28}{self.tool:<23}{''.join(figures)}{len(self.spent):>7}".replace("nan", "  -")


COLUMNS = ("bare", "CPU +", "low 25%", "high 25%", "least", "thread +", "wall +", "told", "ours_s", "of CPU", "of thr.")
"""Microseconds a step: CPU of the bare loop; what a tool adds to the CPU of the process, to that of the training thread
and to the wall-clock; what gpu_doctor tells, all of it (`overhead_s`) and of the training thread (`ours_s`), and these
over what was measured."""
HEAD = f"{'':<51}{''.join(f'{one:>9}' for one in COLUMNS)}{'turns':>7}"


class Child:
    """A process in which some tools wait for their turn; TraceML's is started by its own launcher."""

    def __init__(self, tools: list[str], batch: int, folder: Path) -> None:
        self._said = folder / "said.txt"
        listener = Listener(str(folder / "socket"), "AF_UNIX")
        args = [str(folder / "socket"), ";".join(tools), "--batch", str(batch)]
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

    def turn(self, program: str, tool: str, warm: int, steps: int) -> dict[str, Spent]:
        """What each part of a program's turn took.

        Raises:
            RuntimeError: with the end of what the process said, if it failed.
        """
        try:
            self._connection.send((program, tool, warm, steps))
            found: dict[str, tuple[float, ...]] = self._connection.recv()
        except (EOFError, OSError):
            self._process.wait()
            raise RuntimeError(f"{tool} failed on {program}:\n{self._said.read_text()[-4000:]}") from None
        return {part: Spent(*spent) for part, spent in found.items()}

    def close(self) -> None:
        """Hangs up and waits for the end."""
        with contextlib.suppress(OSError):
            self._connection.send(None)
        self._process.wait()


@contextlib.contextmanager
def seated(tools: list[str], batch: int) -> Iterator[dict[str, Child]]:
    """The process of each tool: one for all that can be taken off again, and one for TraceML."""
    groups = [[one for one in tools if one != TRACEML], [one for one in tools if one == TRACEML]]
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        for group in filter(None, groups):
            child = Child(group, batch, Path(stack.enter_context(tempfile.TemporaryDirectory())))
            stack.callback(child.close)
            children |= dict.fromkeys(group, child)
        yield children


def measured(
    programs: dict[str, Program], tools: list[str], batch: int, steps_s: dict[str, float], options: argparse.Namespace
) -> list[Row]:
    """All rows: bare, A, B, B, A, bare, ... for each program, in fresh processes every round; peers on `MLP` alone."""
    rows: dict[tuple[str, str], Row] = {}
    for number in range(options.rounds):
        with seated(tools, batch) as children:
            for turn, name in itertools.product(range(options.turns), programs):
                warm, steps = (max(round(s / steps_s[name]), 10) for s in (options.warm, options.seconds))
                chosen = tools if name == MLP else [one for one in tools if one in (BARE, OFF)]
                order = chosen if turn % 2 == 0 else chosen[::-1]
                took = {tool: children[tool].turn(name, tool, warm, steps) for tool in order}
                for tool, part in itertools.product(chosen[1:], took[BARE]):
                    row = rows.setdefault((part, tool), Row(part, tool, [], []))
                    row.bare.append(took[BARE][part])
                    row.spent.append(took[tool][part])
        print(f"  round {number + 1} of {options.rounds}", file=sys.stderr)
    return list(rows.values())


def contenders(ours: bool) -> list[str]:
    """The tools that can be measured here, the bare loop first; what is missing is said."""
    if ours:
        return [BARE, OFF]
    names = [BARE, OFF, ON, PROFILER]
    if importlib.util.find_spec("gpuprof"):
        names.append(GPUPROF)
    if importlib.util.find_spec("traceml_ai") and shutil.which(str(Path(sys.executable).with_name("traceml"))):
        names.append(TRACEML)
    for name in {GPUPROF, TRACEML} - set(names):
        print(f"{name} is not installed here and is left out (benchmarks/README.md says how to install it).")
    return names


def verdicts(rows: list[Row]) -> list[str]:
    """Each aim, and whether it is kept."""
    own = {row.part: row for row in rows if row.tool == OFF}
    found = [
        (f"{part}: CPU us a step", own[part].middle_us("cpu_s"), most) for part, most in AIMS_US.items() if part in own
    ]
    for peer in (row for row in rows if row.tool == GPUPROF):
        found.append(
            (f"{peer.part}: over gpuprof's", own[peer.part].middle_us("cpu_s") / peer.middle_us("cpu_s"), 0.25)
        )
    if BUSY in own:
        found.append((f"{BUSY}: % of it", 100 * own[BUSY].middle_us("cpu_s") / own[BUSY].bare_us("cpu_s"), 0.5))
    for name in (part.removesuffix(FIRST_PART) for part in own if part.endswith(FIRST_PART)):
        first, later = (own[name + part].middle_us("thread_s") for part in (FIRST_PART, LATER_PART))
        found.append((f"{name}: its first {FIRST} steps over later ones, training thread", first / later, 1.0))
    for part, row in own.items():
        ratio = row.told_us("ours_s") / row.middle_us("thread_s")
        if ratio > 0:
            found.append((f"{part}: ours_s and true differ by a factor of", max(ratio, 1 / ratio), TOLD_FACTOR))
    return [f"{what:<70}{it:>8.2f}  aim {most:g}: {'kept' if it <= most else 'missed'}" for what, it, most in found]


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--ours", action="store_true", help="gpu_doctor alone")
    options.add_argument(
        "--only", nargs="*", default=[], metavar="PROGRAM", help="programs whose names have this in them"
    )
    options.add_argument("--rounds", type=int, default=2, help="fresh processes of every kind")
    options.add_argument("--turns", type=int, default=10, help="turns in a process")
    options.add_argument("--seconds", type=float, default=0.25, help="timed part of a turn, in bare CPU seconds")
    options.add_argument("--warm", type=float, default=0.15, help="seconds of warming up before it")
    options.add_argument("--quick", action="store_true", help="one short turn, to see that it runs; no figures to keep")
    options.add_argument("--json", type=Path, help="write all turns to this file")
    return options


def main() -> None:
    """Prints the table and the aims."""
    options = parser().parse_args()
    if options.quick:
        options.rounds = options.turns = 1
        options.seconds, options.warm = 0.05, 0.05
    torch.set_num_threads(1)
    here = installed()
    for name in PROGRAMS.keys() - here.keys():
        print(f"{name} is not installed here and is left out.")
    programs = {
        name: one for name, one in here.items() if not options.only or any(part in name for part in options.only)
    }
    batch = batch_for(0.005)
    steps_s = {name: step_s(one, batch) for name, one in programs.items()}
    rows = measured(programs, contenders(options.ours), batch, steps_s, options)
    python, load = platform.python_version(), os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}, Python {python}, torch {torch.__version__}")
    print(HEAD)
    for row in rows:
        print(row.line())
    print("", *verdicts(rows), sep="\n")
    if options.json:
        kept = [
            {"part": row.part, "tool": row.tool, "fields": Spent._fields, "bare": row.bare, "spent": row.spent}
            for row in rows
        ]
        options.json.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()

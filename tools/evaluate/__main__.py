"""Evaluates the diagnosis on programs whose truth is known: `python -m tools.evaluate`.

Each program is evaluated in a process of its own, forked from this one, so that none leaves anything behind for the
next (threads, allocator, hot caches of Python), and one that hangs or dies is a line of the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psutil

from tools.evaluate import evaluator, score, timing
from tools.evaluate.evaluator import Evaluation
from tools.evaluate.limits import leave
from tools.evaluate.program import UNSEEN, Program, Recorded, corpus, programs

PATIENCE_S: Final = 120.0
"""The most seconds that one program may take; ten times as much where its whole run is timed."""
QUIET_PCT: Final = 20.0
"""With --wait, an evaluation begins when other programs use less of the cores than this."""


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns 0 if every bar was reached."""
    options = _parser().parse_args(arguments)
    if options.read:
        return _added_up(options.read)
    known = programs(UNSEEN) if options.unseen else corpus()
    chosen = list(_chosen(known, options))
    if not chosen:
        print("No such program. There are:", *(program.name for program in known), sep="\n  ")
        return 2
    if options.list:
        print(*(f"{program.group}: {program.name}" for program in chosen), f"{len(chosen)} programs", sep="\n")
        return 0
    print(f"{len(chosen)} programs, load {os.getloadavg()[0]:.2f} on {len(os.sched_getaffinity(0))} cores")
    print(score.HEAD, flush=True)
    found: list[Evaluation] = []
    for program in chosen:
        if isinstance(program, Program) and not options.quick:
            _wait_for_quiet(options.wait)
        found.append(_apart(program, options))
        print(
            f"{program.name:32} {found[-1].error or found[-1].absent or 'ran'}"
            if options.quick
            else score.line(found[-1]),
            flush=True,
        )
        if options.verbose:
            print(f"    {found[-1].shares} {found[-1].findings} {found[-1].settings}", flush=True)
        if options.json:
            lines = ",\n".join(json.dumps(evaluation.plain()) for evaluation in found)
            Path(options.json).write_text(f"[\n{lines}\n]\n")
    if options.quick:
        return int(any(evaluation.error for evaluation in found))
    print(f"\n{score.totals(found)}\nload {os.getloadavg()[0]:.2f}")
    return int(not score.passed(found))


def _added_up(files: list[str]) -> int:
    """Prints what earlier calls wrote with --json as one table."""
    found = [Evaluation.from_plain(plain) for path in files for plain in json.loads(Path(path).read_text())]
    print(score.HEAD, *(score.line(evaluation) for evaluation in found), f"\n{score.totals(found)}", sep="\n")
    return int(not score.passed(found))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.evaluate", description=__doc__)
    parser.add_argument("--unseen", action="store_true", help="the programs of people who had not read the rules")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="programs whose name holds this")
    parser.add_argument("--group", action="append", default=[], help="programs of a folder, such as host or healthy")
    parser.add_argument("--holdout", action="store_true", help="those on which no forecast is tuned")
    parser.add_argument("--tuning", action="store_true", help="the others whose gain is predicted")
    parser.add_argument("--list", action="store_true", help="only list what is chosen")
    parser.add_argument("--trial", action="store_true", help="also try what is prescribed, as a user would")
    parser.add_argument("--read", nargs="+", metavar="FILE", help="evaluate nothing: add up what --json wrote")
    parser.add_argument("--rounds", type=int, default=timing.ROUNDS, help="the fewest pairs of sick and cured runs")
    parser.add_argument("--quick", action="store_true", help="only run a few steps of each program")
    parser.add_argument(
        "--wait", type=float, default=5.0, metavar="S", help="the longest wait for free cores each time"
    )
    parser.add_argument("--json", metavar="FILE", help="write the evaluations there")
    parser.add_argument("--verbose", action="store_true", help="print shares and all findings too")
    return parser


def _wait_for_quiet(patience_s: float) -> None:
    """Returns when the cores are mostly free for half a second, or when the patience is at its end."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and psutil.cpu_percent(interval=0.5) >= QUIET_PCT:
        pass


def _chosen(known: tuple[Program | Recorded, ...], options: argparse.Namespace) -> Iterator[Program | Recorded]:
    for program in known:
        if (
            (not options.group or program.group in options.group)
            and (not options.only or any(part in program.name for part in options.only))
            and (not options.holdout or program.holdout)
            and (not options.tuning or (program.predictable and not program.holdout))
        ):
            yield program


def _apart(program: Program | Recorded, options: argparse.Namespace) -> Evaluation:
    """Evaluates a program in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_evaluate, args=(theirs, program, options))
    process.start()
    theirs.close()
    found = Evaluation.of(program)
    patience_s = PATIENCE_S * (2.0 if options.trial else 1.0)
    if isinstance(program, Program) and program.timed == "whole":
        patience_s *= 10.0
    try:
        found = ours.recv() if ours.poll(patience_s) else found
        if not found.seconds:
            found.error = f"did not end within {patience_s:g} s"
    except EOFError:
        found.error = "the process died"
    finally:
        _end(process, found.error != "")
    if isinstance(program, Program) and program.limits is not None and program.limits.memory_mib is not None:
        leave(process.pid or 0)
    return found


def _end(process: multiprocessing.process.BaseProcess, at_once: bool) -> None:
    """Ends the process of a program, and what it started: workers of its loaders would hold our output open."""
    if not at_once:
        process.join()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()


def _evaluate(pipe: Any, program: Program | Recorded, options: argparse.Namespace) -> None:
    os.setpgid(0, 0)  # whatever the program starts is of this group, which ends as a whole
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = nowhere  # what a program prints is its own affair
        warnings.simplefilter("ignore")
        if options.quick:
            found = evaluator.glance(program)
        else:
            found = evaluator.evaluate(program, options.rounds, trial=options.trial)
        pipe.send(found)


if __name__ == "__main__":
    raise SystemExit(main())

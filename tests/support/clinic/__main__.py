"""The clinic as a command: `python -m tests.support.clinic`; `--help` lists what can be asked of it.

Every patient is examined in a process of its own, forked from this one, so that none leaves anything behind for the
next (threads, allocator, hot caches of Python), and one that hangs or dies is a line of the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.support.clinic import bare, physician, score, thirds
from tests.support.clinic.cell import Cell, Patient
from tests.support.clinic.physician import Visit
from tests.support.clinic.room import leave
from tests.support.clinic.ward import FAMILIES

PATIENCE_S = 120.0
QUIET_PCT = 20.0
"""With --wait, an examination begins when other programs use less of the cores than this."""


def main(words: list[str] | None = None) -> int:
    """Prints the table; 0 if every bar was reached."""
    options = _parser().parse_args(words)
    if options.read:
        return _added_up(options.read)
    visits: list[Visit] = []
    chosen = list(_chosen(options))
    if not chosen:
        print("No such patient. There are:", *(one.name for ones in FAMILIES.values() for one in ones), sep="\n  ")
        return 2
    if options.list:
        print(*(f"{family}: {one.name}" for family, one in chosen), f"{len(chosen)} patients", sep="\n")
        return 0
    print(f"{len(chosen)} patients, load {os.getloadavg()[0]:.2f} on {len(os.sched_getaffinity(0))} cores")
    print(score.HEAD, flush=True)
    for family, patient in chosen:
        if isinstance(patient, Cell) and not options.quick:
            _wait_for_quiet(options.wait)
        visits.append(_in_a_room(patient, family, options))
        print(
            f"{patient.name:32} {visits[-1].error or visits[-1].absent or 'ran'}"
            if options.quick
            else score.line(visits[-1]),
            flush=True,
        )
        if options.verbose:
            print(f"    {visits[-1].shares} {visits[-1].findings} {visits[-1].settings}", flush=True)
        if options.json:
            lines = ",\n".join(json.dumps(one.plain()) for one in visits)
            Path(options.json).write_text(f"[\n{lines}\n]\n")
    if not options.quick:
        print(f"\n{score.totals(visits)}\nload {os.getloadavg()[0]:.2f}")
    if options.quick:
        return int(any(one.error for one in visits))
    return int(not score.passed(visits))


def _added_up(files: list[str]) -> int:
    """Prints what earlier calls wrote with --json as one table."""
    visits = [Visit.from_plain(one) for path in files for one in json.loads(Path(path).read_text())]
    print(score.HEAD, *(score.line(one) for one in visits), f"\n{score.totals(visits)}", sep="\n")
    return int(not score.passed(visits))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.clinic", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="patients whose name holds this")
    parser.add_argument("--family", action="append", default=[], choices=list(FAMILIES))
    parser.add_argument("--third", choices=[thirds.HELD_BACK, thirds.TUNING], help="of those with a gain to foretell")
    parser.add_argument("--seed", type=int, default=20, help="of the choice of the third that is held back")
    parser.add_argument("--list", action="store_true", help="only say who is chosen")
    parser.add_argument("--trial", action="store_true", help="also try what is prescribed, as a user would")
    parser.add_argument("--read", nargs="+", metavar="FILE", help="examine nobody: add up what --json wrote")
    parser.add_argument("--rounds", type=int, default=bare.ROUNDS, help="sick and cured cells timed so often")
    parser.add_argument("--quick", action="store_true", help="only see that every cell runs, a few steps of each")
    parser.add_argument("--wait", type=float, default=5.0, metavar="S", help="wait so long for free cores each time")
    parser.add_argument("--json", metavar="FILE", help="write the visits there")
    parser.add_argument("--verbose", action="store_true", help="print shares and all findings too")
    return parser


def _wait_for_quiet(patience_s: float) -> None:
    """Returns when the cores are mostly free for half a second, or when the patience is at its end."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until and psutil.cpu_percent(interval=0.5) >= QUIET_PCT:
        pass


def _chosen(options: argparse.Namespace) -> Iterator[tuple[str, Patient]]:
    for family, patients in FAMILIES.items():
        among = thirds.third(options.third, family, patients, options.seed) if options.third else patients
        for patient in among if not options.family or family in options.family else ():
            if not options.only or any(one in patient.name for one in options.only):
                yield family, patient


def _in_a_room(patient: Patient, family: str, options: argparse.Namespace) -> Visit:
    """Examines a patient in a process of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    room = context.Process(target=_examine, args=(theirs, patient, family, options))
    room.start()
    theirs.close()
    visit = Visit(patient.name, family, patient.klass, wanted=patient.top, healthy=patient.healthy)
    try:
        patience = PATIENCE_S * (2.0 if options.trial else 1.0)
        visit = ours.recv() if ours.poll(patience) else visit
        if not visit.seconds:
            visit.error = f"did not end within {patience:g} s"
            room.kill()
    except EOFError:
        visit.error = "the process died"
    room.join()
    if isinstance(patient, Cell) and patient.room is not None and patient.room.memory_bytes is not None:
        leave(room.pid or 0)
    return visit


def _examine(pipe: Any, patient: Patient, family: str, options: argparse.Namespace) -> None:
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = nowhere  # what a cell prints is its own affair
        warnings.simplefilter("ignore")
        if options.quick:
            visit = physician.glance(patient, family)
        else:
            visit = physician.examine(patient, family, options.rounds, trial=options.trial)
        pipe.send(visit)


if __name__ == "__main__":
    raise SystemExit(main())

"""Which experiment trackers a cell reports to: a trial reports nothing there, or is refused."""

from __future__ import annotations

import ast
import sys
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.cell import CellSource
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.said_before import Beforehand
from gpu_doctor.trials.side_effects.tracker_table import TRACKERS
from gpu_doctor.trials.side_effects.trackers import open_runs, reporter_of

_MOST: Final = 4
"""Largest number of names in a sentence."""


def silenced(case: Runner) -> Beforehand:
    """Names open runs, writers among the variables, and trackers that the cell's text uses.

    One that a side would load first is refused, unless a variable of the environment keeps it off: nothing holds back
    what is not there yet.
    """
    objects = {id(value): (name, value) for name, value in case.namespace.items() if not name.startswith("_")}
    reporters = [(name, value, reporter_of(value)) for name, value in objects.values()]
    told = {
        **dict.fromkeys(open_runs()),
        **{f"{name} ({type(value).__name__})": None for name, value, tracker in reporters if tracker},
    }
    covered = {tracker for _, _, tracker in reporters}
    used, loaded = _packages_in(CellSource(case.source)), sys.modules.keys()
    for tracker in TRACKERS:
        by_name = any(package in used for package in tracker.packages)
        if by_name and tracker.name not in covered and not any(run.startswith(tracker.packages) for run in told):
            told[tracker.name] = None
    unloaded = [
        tracker.name
        for tracker in TRACKERS
        if not tracker.offline and any(name in used - loaded for name in tracker.packages)
    ]
    refusals = tuple(f"Your cell loads {name}, which a trial has to find loaded: import it first." for name in unloaded)
    if not told:
        return Beforehand()
    *shown, last = [formatting.clean(sentence, 80) for sentence in list(told)[:_MOST]]
    more = f" and {len(told) - _MOST} more" if len(told) > _MOST else ""
    listed = f"{', '.join(shown)} and {last}" if shown and not more else ", ".join([*shown, last])
    note = f"A trial reports nothing to {listed}{more}: what your cell logs there is held back."
    return Beforehand(refusals, notes=(note,))


def _packages_in(source: CellSource) -> set[str]:
    """Packages that a text imports or names."""
    found = {node.id for node in source.walk(ast.Name)}
    for node in source.walk(ast.Import, ast.ImportFrom):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        found |= {name.partition(".")[0] for name in names} | set(names)
    return found

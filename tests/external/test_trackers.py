"""Trials of cells that report to experiment trackers, with each of them that is installed, in a process of its own.

An audit hook sees what the trial's side opens for writing, connects to and starts. The other trackers are tried by
their modules' shape in tests/unit/trials/test_trackers.py; `python -m tests.support.tracker_programs NAME` runs one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.support.repository import ROOT
from tests.support.tracker_programs import PROGRAMS, Seen


def seen_of(name: str, *arguments: str) -> Seen:
    """What a program's side did, in a process of its own."""
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.tracker_programs", name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=surroundings, timeout=240)
    told = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert told, f"{done.stdout}\n{done.stderr}"
    return Seen(**json.loads(told[-1].removeprefix("SEEN ")))


TESTED = ("tensorboard", "tensorboardX", "transformers")
"""Trackers that belong to the tested set (constraints.txt); the others run where they are installed."""
HERE = [name for name, one in PROGRAMS.items() if one.needs in TESTED or importlib.util.find_spec(one.needs)]


@pytest.mark.parametrize("name", HERE)
def test_no_point_file_or_request_of_a_trial_reaches_a_tracker(name: str) -> None:
    program = PROGRAMS[name]
    seen = seen_of(name)
    assert seen.events == [] and seen.changed == []
    assert seen.notes == [f"{tracker}: the trial logged nothing there." for tracker in program.trackers]


def test_a_report_that_is_not_held_back_would_be_seen() -> None:
    seen = seen_of("tensorboardX", "--aloud")
    assert any(path.startswith("runs/new") for path in seen.changed) and seen.events

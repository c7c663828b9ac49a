"""Files that a cell writes in a trial are listed; those of a run are not watched."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpu_doctor
from gpu_doctor.trials.side_effects import kept_files
from tests.support.written_files_parts import digest, space
from tests.support.written_files_parts import folder as folder

pytestmark = pytest.mark.slow

CELL = """
import pathlib
import numpy as np
for i in range(30):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    if i % 2:
        torch.save(model.state_dict(), "runs/x.pt")
        pathlib.Path("log.txt").write_text("step")
"""


def test_a_trial_lists_them_and_a_run_is_not_watched(folder: Path) -> None:
    case = gpu_doctor.case(CELL, space())
    assert case.run().written is None
    effect = case.trial({"threads": 1}, steps=6, seconds=8.0, pairs=1)
    assert effect.written == ("runs/x.pt", "log.txt")
    assert "was put back: runs/x.pt and log.txt" in str(effect)
    assert effect.to_dict()["written"] == effect.written
    assert case.trials[-1][1].written == effect.written


def test_a_trial_that_writes_nothing_says_nothing(folder: Path) -> None:
    cell = "\n".join(
        line for line in CELL.splitlines() if "save" not in line and "log" not in line and "if" not in line
    )
    effect = gpu_doctor.case(cell, space()).trial({"threads": 1}, steps=6, seconds=8.0, pairs=1)
    assert effect.written == ()
    assert "wrote" not in str(effect)


def test_nothing_that_an_audit_hook_sees_touched_is_missed_and_all_of_it_is_put_back(tmp_path: Path) -> None:
    """In a process of its own: the hook cannot be taken off."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.file_zoo", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == ""
    heard = [int(line.split()[-2]) for line in done.stderr.splitlines() if line.endswith(" heard")]
    assert len(heard) == 24 and sum(heard) > 300


COPY_S = 2.0
"""So long that no machine is busy enough to make a step of it."""


def test_no_copy_falls_into_a_measured_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that takes as long as a thousand steps is seen in no step of any side that is compared."""
    slept, copied = list[str](), kept_files._copied_first

    def slowly(path: str, to: Path, size: int) -> None:
        slept.append(path)
        time.sleep(COPY_S)
        copied(path, to, size)

    monkeypatch.setattr(kept_files, "_copied_first", slowly)
    cell = """
for i in range(40):
    optimizer.zero_grad(); model(torch.ones(2, 3)).sum().backward(); optimizer.step()
    if i == 12:
        torch.save(model.state_dict(), "old.txt")
"""
    before = digest(folder)
    case = gpu_doctor.case(cell, space())
    effect = case.trial({"threads": 1}, steps=20, seconds=20, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect
    assert len(slept) == 1
    assert max(float(side.steps.wall_s.max()) for side in case.trials[-1]) < COPY_S
    assert digest(folder) == before

"""Files that a cell writes in a trial are listed; those of a run are not watched."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_doctor
from tests.support.written_files_parts import folder as folder
from tests.support.written_files_parts import space

pytestmark = pytest.mark.core

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
    effect = case.trial({"threads": 1}, steps=6, seconds=8.0)
    assert effect.written == ("runs/x.pt", "log.txt")
    assert "your cell wrote runs/x.pt and log.txt during the trial" in str(effect)
    assert effect.to_dict()["written"] == effect.written
    assert case.trials[-1][1].written == effect.written


def test_a_trial_that_writes_nothing_says_nothing(folder: Path) -> None:
    cell = "\n".join(
        line for line in CELL.splitlines() if "save" not in line and "log" not in line and "if" not in line
    )
    effect = gpu_doctor.case(cell, space()).trial({"threads": 1}, steps=6, seconds=8.0)
    assert effect.written == ()
    assert "wrote" not in str(effect)

"""The clinic's cells run, and those with wide margins are judged right; `make clinic` examines all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.clinic.bare import step_s
from tests.support.clinic.cell import Cell
from tests.support.clinic.ward import FAMILIES, PATIENTS
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

CELLS = [one for one in PATIENTS if isinstance(one, Cell)]


ENDING = {one.name for one in CELLS if one.dies}


def clinic(*words: str, out: Path) -> list[dict[str, object]]:
    """What the command writes about some patients."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.clinic", *words, "--json", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert out.exists(), done.stdout + done.stderr[-3000:]
    found: list[dict[str, object]] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("family", [name for name, ones in FAMILIES.items() if any(isinstance(o, Cell) for o in ones)])
def test_every_cell_runs(family: str, tmp_path: Path) -> None:
    visits = clinic("--quick", "--family", family, out=tmp_path / "visits.json")
    assert [one["name"] for one in visits] == [one.name for one in FAMILIES[family]]
    assert [f"{one['name']}: {one['error']}" for one in visits if one["error"]] == []
    ends = [one for one in visits if one["name"] in ENDING and not one["absent"]]
    assert [one["name"] for one in ends if not (one["class_right"] and one["rule_right"])] == []


WIDE_MARGINS = (
    "sleeping-dataset",
    "two-workers-for-a-slow-store",
    "bursts-of-four-workers",
    "host-work-after-the-step",
    "gc-collect-each-step",
    "evaluation-longer-than-training",
    "four-micro-batches-a-step",
    "plain-classifier",
)
"""Cells whose trouble takes nearly half of the time or more, or none at all: judged alike on a busy machine."""


def test_cells_with_wide_margins_are_judged_right(tmp_path: Path) -> None:
    words = [word for name in WIDE_MARGINS for word in ("--only", name)]
    visits = clinic("--rounds", "1", *words, out=tmp_path / "visits.json")
    assert {str(one["name"]) for one in visits} >= set(WIDE_MARGINS)
    wrong = {one["name"]: one["findings"] for one in visits if not (one["class_right"] and one["rule_right"])}
    assert wrong == {}


def test_the_truth_is_the_seconds_between_steps_after_the_first_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only sleeping moves."""
    now_s = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now_s.append(now_s.pop() + seconds))
    above = "import time, torch\nw = torch.zeros(1, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
    cell = "for i in range(20):\n    w.grad = torch.ones(1)\n    time.sleep(0.2 if i < 2 else 0.01)\n    opt.step()\n"
    assert step_s(above, cell) == pytest.approx(0.01)
    assert step_s(above, cell + "time.sleep(0.15)\n", tail=True) == pytest.approx(0.02)  # 0.15 s for fifteen steps
    with pytest.raises(RuntimeError, match="made 3 steps"):
        step_s(above, cell.replace("20", "3"))

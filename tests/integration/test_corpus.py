"""The programs of the corpus run, and those with wide margins are judged right; `make evaluate` takes all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tools.evaluate.program import CORPUS, Program, programs
from tools.evaluate.timing import bare_s

pytestmark = pytest.mark.slow

MOST = 6
"""Programs that run within the time of a test, on a machine that other tests use as well."""
GROUPS: dict[str, list[Program]] = {}
for _program in programs(CORPUS):
    GROUPS.setdefault(_program.group, []).append(_program)
PARTS = {
    f"{group}-{begin // MOST}": found[begin : begin + MOST]
    for group, found in GROUPS.items()
    for begin in range(0, len(found), MOST)
}


def evaluated(*arguments: str, out: Path) -> list[dict[str, object]]:
    """Returns what the command writes about some programs."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.evaluate", *arguments, "--json", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert out.exists(), done.stdout + done.stderr[-3000:]
    found: list[dict[str, object]] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("chosen", PARTS.values(), ids=PARTS)
def test_every_program_runs(chosen: list[Program], tmp_path: Path) -> None:
    names = [word for program in chosen for word in ("--only", program.name)]
    found = evaluated("--quick", "--group", chosen[0].group, *names, out=tmp_path / "found.json")
    assert {one["name"] for one in found} >= {program.name for program in chosen}
    assert [f"{one['name']}: {one['error']}" for one in found if one["error"]] == []
    failing = {program.name for program in chosen if program.fails}
    failed = [one for one in found if one["name"] in failing and not one["absent"]]
    assert [one["name"] for one in failed if not (one["class_right"] and one["cause_right"])] == []


WIDE_MARGINS = (
    "sleeping-dataset",
    "two-workers-for-a-slow-store",
    "host-work-after-the-step",
    "gc-collect-each-step",
    "evaluation-longer-than-training",
    "four-micro-batches-a-step",
    "plain-classifier",
)
"""Programs whose trouble takes nearly half of the time or more, or none at all: judged alike on a busy machine."""


def test_programs_with_wide_margins_are_judged_right(tmp_path: Path) -> None:
    names = [word for name in WIDE_MARGINS for word in ("--only", name)]
    found = evaluated("--rounds", "1", *names, out=tmp_path / "found.json")
    assert {str(one["name"]) for one in found} >= set(WIDE_MARGINS)
    wrong = {one["name"]: one["findings"] for one in found if not (one["class_right"] and one["cause_right"])}
    assert wrong == {}


def test_the_truth_is_the_seconds_between_steps_after_the_first_fifth(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only sleeping moves."""
    now_s = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now_s.append(now_s.pop() + seconds))
    above = "import time, torch\nw = torch.zeros(1, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
    cell = "for i in range(20):\n    w.grad = torch.ones(1)\n    time.sleep(0.2 if i < 2 else 0.01)\n    opt.step()\n"
    assert bare_s(above, cell) == pytest.approx(0.01)
    assert bare_s(above, cell + "time.sleep(0.15)\n", "tail") == pytest.approx(0.02)  # 0.15 s for fifteen steps
    assert bare_s(above, cell, "whole") == pytest.approx(0.2 + 18 * 0.01)
    with pytest.raises(RuntimeError, match="made 3 steps"):
        bare_s(above, cell.replace("20", "3"))

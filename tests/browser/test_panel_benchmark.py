"""The panel's benchmark runs and prints its table; what it measures is for people, on a quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.panel.parts import PARTS
from tests.support.repository import ROOT


def test_every_part_gives_its_figures(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.panel", "--quick", "--json", str(found)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(found.read_text())["rows"]
    assert {row["part"] for row in rows} == set(PARTS)
    for row in rows:
        assert row["what"] in done.stdout
        assert isinstance(row["value"], int | float)

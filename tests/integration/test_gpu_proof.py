"""Blocks of `make gpu` that hang, die or run out of time: their rows stay, and all that they began is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu import running
from benchmarks.gpu.kept import NAME, Stage, add, read, row

CARD = {"card": "a card", "simulated": False, "torch": "2.8.0"}
HANGS = """
import subprocess, sys, time
from pathlib import Path
from benchmarks.gpu.kept import add
folder = Path(sys.argv[1])
add(folder, {"block": "probe", "row": "one", "said": "found", "good": True})
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
(folder / "pids").write_text(f"{own.pid}")
print("hangs", flush=True)
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass
"""


def test_a_process_that_hangs_is_ended_with_all_that_it_began_and_its_rows_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hanging(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            """Its time is over when it hangs, however long a busy machine takes to get there."""
            while timeout is not None:
                if "hangs" in (tmp_path / "log.txt").read_text():
                    raise subprocess.TimeoutExpired(self.args, timeout)
                time.sleep(0.02)
            return super().wait()

    monkeypatch.setattr(subprocess, "Popen", Hanging)
    add(tmp_path, {"machine": CARD})
    words = [sys.executable, "-c", HANGS, str(tmp_path)]
    assert running.ended(words, tmp_path / "log.txt", 2.0, os.environ) is None
    assert (tmp_path / "log.txt").read_text() == "hangs\n"
    assert read(tmp_path, CARD)["probe"]["rows"]["one"]["said"] == "found"
    other = int((tmp_path / "pids").read_text())  # a group of its own, as a kernel leads
    deadline = time.monotonic() + 10.0
    while psutil.pid_exists(other) and psutil.Process(other).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_row_that_takes_too_long_is_left_and_the_next_is_found(tmp_path: Path) -> None:
    add(tmp_path, {"machine": CARD})
    here = Stage("probe", tmp_path, CARD, 1.0)
    here.run({"slow": lambda: time.sleep(30) or row("never"), "quick": lambda: row("found")}, share=1.0)  # type: ignore[func-returns-value]
    assert here.rows["slow"]["said"].startswith("OutOfTime") and here.rows["quick"]["said"] == "found"
    assert here.seconds() > 0.0 and len((tmp_path / NAME).read_text().splitlines()) == 3


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_rehearsal_runs_both_calls_whole(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(tmp_path)]
    code = running.ended(words, tmp_path / "said.txt", 400.0, os.environ)
    assert code == 0, (tmp_path / "said.txt").read_text()

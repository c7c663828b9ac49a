"""Blocks of `make gpu` that hang, die or run out of time: their rows stay, and all that they began is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest

from benchmarks.gpu import gpm, running, wheels
from benchmarks.gpu.kept import CUT_OFF, NAME, OutOfTime, Stage, add, limited, read, row
from benchmarks.gpu.plan import named
from tests.support.stub_nvml import Card, StubNvml

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


def test_a_loop_that_takes_every_exception_is_told_again() -> None:
    heard = list[BaseException]()

    def stubborn() -> None:
        until = time.monotonic() + 10.0
        while len(heard) < 2 and time.monotonic() < until:
            try:
                time.sleep(5)
            except BaseException as error:
                heard.append(error)

    with limited(0.05):
        stubborn()
    assert [type(one) for one in heard] == [OutOfTime] * 2


def test_a_block_whose_process_outlives_its_time_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, {"machine": CARD})
    (work := tmp_path / "work").mkdir()
    one = running.Call(tmp_path, work, CARD, time.monotonic() + 60.0)
    monkeypatch.setattr(running, "GRACE_S", 0.0)
    block = named("probe")
    assert running.run([(block, 0.2)], one) == [block.name]
    assert read(tmp_path, CARD)[block.name]["status"] == CUT_OFF


def test_an_environment_sees_this_python_this_checkout_and_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "made_up-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("made_up.py", "here = True\n")
    monkeypatch.setattr(wheels, "missing", lambda: ["made-up", "not-carried"])
    python, said = wheels.environment(tmp_path / "python", tmp_path)
    assert "made-up" in said and "not-carried" in said
    code = "import gpu_doctor, made_up, numpy, pytest; print(gpu_doctor.__file__)"
    assert running.ended([str(python), "-I", "-c", code], tmp_path / "log.txt", 60.0, {}) == 0
    assert Path((tmp_path / "log.txt").read_text().strip()).is_relative_to(running.ROOT)


def test_gpm_and_clocks_are_read_between_two_moments_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubNvml(Card(gpm={1: 50.0, 2: 40.0}))
    monkeypatch.setitem(sys.modules, "pynvml", stub)
    assert gpm.Between().read(range(1, 5)) == {1: 50.0, 2: 40.0}
    with gpm.clocks(0.01) as seen:
        until = time.monotonic() + 60.0
        while not seen and time.monotonic() < until:
            time.sleep(0.01)
    assert {one for _, one in seen} == {1755} and stub.open == stub.samples == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpm.Between().read([1]) == {}, "where there is no NVML nothing is told"


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_a_rehearsal_runs_both_calls_whole(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.gpu", "--rehearse", "--out", str(tmp_path)]
    code = running.ended(words, tmp_path / "said.txt", 400.0, os.environ)
    assert code == 0, (tmp_path / "said.txt").read_text()

"""The machinery of `make gpu`: what is kept, what goes on, what fits, what is carried, and its arithmetic."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import archive, running, wheels
from benchmarks.gpu.kept import CUT_OFF, DONE, FAILED, Stage, ended_by_force, read, row
from benchmarks.gpu.parts import kineto, largest_batch, nvml, patients, tests
from benchmarks.gpu.patient import Patient
from benchmarks.gpu.patients import HEALTHY, LEFT_OUT, PATIENTS
from benchmarks.gpu.phases import phase_seconds
from benchmarks.gpu.plan import PARTS, Part
from benchmarks.gpu.table import table
from benchmarks.gpu.timing import gain, in_turns
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.machine import torch_memory
from gpu_doctor.recording import Steps

CARD = {"card": "NVIDIA H100 80GB HBM3", "simulated": False, "torch": "2.8.0", "python": "3.12.3"}
A, B, C = (Part(name, name, 1.0) for name in "abc")


class Clock:
    """Stands until it is told to go on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def stage(out: Path, clock: Clock, seconds: float = 60.0, **machine: Any) -> Stage:
    return Stage("a", out, {**CARD, **machine}, seconds, clock=clock)


def test_the_parts_are_ten_of_nine_minutes_at_most_and_25_in_all() -> None:
    assert len({one.name for one in PARTS}) == 10
    assert max(one.minutes for one in PARTS) <= 9 and sum(one.minutes for one in PARTS) <= 25
    assert all(callable(importlib.import_module(one.module).run) for one in PARTS)


def test_a_row_is_kept_at_once_and_never_done_again(tmp_path: Path) -> None:
    clock, done = Clock(), list[str]()

    def work(name: str) -> Callable[[], dict[str, Any]]:
        return lambda: done.append(name) or row(name, True, value=np.float64("nan"), number=np.int64(3))  # type: ignore[func-returns-value]

    first = stage(tmp_path, clock, 10.0)
    first.row("one", work("one"))
    assert read(tmp_path, "a")["rows"]["one"]["figures"] == {"value": None, "number": 3}
    clock.now = 10.0
    first.row("two", work("two"))
    assert first.end() == CUT_OFF and read(tmp_path, "a")["left"] == ["two"]
    again = stage(tmp_path, clock)
    again.row("one", work("one"))
    again.row("two", work("two"))
    assert again.end() == DONE and done == ["one", "two"]


def test_a_failed_row_leaves_its_traceback_and_is_tried_again(tmp_path: Path) -> None:
    first = stage(tmp_path, Clock())
    first.row("bad", lambda: row(str(1 // 0)))
    first.row("good", lambda: row("fine"))
    assert first.end() == FAILED
    kept = read(tmp_path, "a")["rows"]
    assert "ZeroDivisionError" in kept["bad"]["error"] and kept["good"]["said"] == "fine"
    again = stage(tmp_path, Clock())
    assert set(again.rows) == {"good"}
    again.row("bad", lambda: row("now it works"))
    assert again.end() == DONE


def test_what_another_card_or_torch_gave_does_not_count(tmp_path: Path) -> None:
    first = stage(tmp_path, Clock())
    first.row("one", lambda: row("here"))
    first.end()
    assert set(stage(tmp_path, Clock()).rows) == {"one"}
    assert not stage(tmp_path, Clock(), card="NVIDIA T4").rows and not stage(tmp_path, Clock(), simulated=True).rows


def call(out: Path, clock: Clock, minutes: float) -> running.Call:
    return running.Call(out, CARD, False, clock.now + 60 * minutes, {}, clock)


def test_a_call_begins_nothing_that_does_not_fit_and_the_next_goes_on(tmp_path: Path) -> None:
    clock, begun = Clock(), list[str]()

    def start(part: Part, one: running.Call) -> str:
        begun.append(part.name)
        clock.now += 60.0
        here = Stage(part.name, one.out, one.machine, 60.0, clock=clock)
        here.row("row", lambda: row("found") if part is not B or begun.count("b") > 1 else row(str(1 // 0)))
        return here.end()

    assert running.run((A, B, C), call(tmp_path, clock, 2.5), start) == [C]
    assert begun == ["a", "b"]
    assert running.run((A, B, C), call(tmp_path, clock, 9), start) == []
    assert begun == ["a", "b", "c", "b"], "what has not begun comes before what failed, what is done not at all"
    assert running.run((A, B, C), call(tmp_path, clock, 9), start) == [] and len(begun) == 4


def test_a_process_that_is_ended_by_force_keeps_its_rows(tmp_path: Path) -> None:
    stage(tmp_path, Clock()).row("one", lambda: row("found"))
    ended_by_force(tmp_path, "a", CARD, CUT_OFF, "its time was over")
    kept = read(tmp_path, "a")
    assert kept["status"] == CUT_OFF and kept["rows"]["one"]["said"] == "found"
    ended_by_force(tmp_path, "b", CARD, FAILED, "its process ended with -11")
    assert read(tmp_path, "b")["error"].endswith("-11")


def test_a_command_is_ended_with_its_time(tmp_path: Path) -> None:
    assert running.ended([sys.executable, "-c", "print('said')"], tmp_path / "log.txt", 60.0, {}) == 0
    assert (tmp_path / "log.txt").read_text() == "said\n"
    endless = [sys.executable, "-c", "while True: pass"]
    assert running.ended(endless, tmp_path / "log.txt", 0.0, {}) is None


@pytest.mark.parametrize(
    ("name", "python", "machine", "right"),
    [
        ("pytest-9.0-py3-none-any.whl", (3, 12), "x86_64", True),
        ("psutil-7.2-cp36-abi3-manylinux2014_x86_64.manylinux_2_28_x86_64.whl", (3, 13), "x86_64", True),
        ("psutil-7.2-cp36-abi3-manylinux2014_aarch64.whl", (3, 13), "x86_64", False),
        ("numpy-2.2-cp312-cp312-manylinux_2_17_x86_64.whl", (3, 12), "x86_64", True),
        ("numpy-2.2-cp312-cp312-manylinux_2_17_x86_64.whl", (3, 11), "x86_64", False),
        ("new-1.0-cp313-abi3-manylinux_2_17_x86_64.whl", (3, 12), "x86_64", False),
        ("six-1.0-py2.py3-none-any.whl", (3, 10), "aarch64", True),
    ],
)
def test_a_wheel_fits_a_python(name: str, python: tuple[int, int], machine: str, right: bool) -> None:
    assert wheels.fits(name, python, machine) is right


def test_what_is_missing_comes_out_of_the_wheels_and_what_is_not_there_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "pytest_timeout-2.4.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pytest_timeout.py", "here = True\n")
    found = wheels.unpacked(["pytest-timeout", "psutil"], tmp_path / "site-packages", tmp_path)
    assert found == (["pytest-timeout"], ["psutil"])
    assert (tmp_path / "site-packages" / "pytest_timeout.py").read_text() == "here = True\n"


def test_the_archive_has_all_of_it_and_a_later_call_goes_on_from_it(tmp_path: Path) -> None:
    here = Stage("recordings", tmp_path, CARD, 60.0, clock=Clock())
    here.row("healthy", lambda: row("12 kB | small", True))
    here.end()
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "healthy.npz").write_bytes(b"columns")
    left = archive.leave(tmp_path, CARD, PARTS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / archive.NAME).write_bytes(left.read_bytes())
    assert archive.taken_up(elsewhere, PARTS) == ["recordings"]
    assert read(elsewhere, "recordings") == read(tmp_path, "recordings")
    assert (elsewhere / "recordings" / "healthy.npz").read_bytes() == b"columns"
    assert archive.taken_up(elsewhere, PARTS) == [], "what is there is not overwritten"
    told = (tmp_path / "table.md").read_text()
    assert "NVIDIA H100 80GB HBM3" in told and "| healthy | 12 kB \\| small | yes |" in told


def test_a_rehearsal_says_that_it_is_one() -> None:
    assert "Simulated" not in table(CARD, {}, PARTS)
    assert "**Simulated.** No GPU took part" in table({**CARD, "card": "simulated", "simulated": True}, {}, PARTS)


def test_without_a_gpu_one_sentence_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "machine", lambda rehearse, around: {"why_not": "torch sees no CUDA device here."})
    assert command.main(["--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.err == "torch sees no CUDA device here.\n" and not said.out
    assert not (tmp_path / archive.NAME).exists()


@pytest.mark.parametrize("one", PATIENTS, ids=lambda one: one.key)
def test_a_patients_cells_are_python_and_its_rules_are_ours(one: Patient) -> None:
    above = one.above("cuda", 10, 64)
    for text in (above, one.sick, one.cured):
        compile(text, "<cell>", "exec")
    assert one.loader in above
    assert one.rule == HEALTHY or {one.rule, *one.others} <= {rule.name for rule in RULES}


def test_every_rule_that_only_a_gpu_can_break_has_a_patient_or_a_reason() -> None:
    from tests.support.found import GPU_ONLY

    left_out = {name for names in LEFT_OUT for name in names.split(", ")}
    assert set(GPU_ONLY) - {one.rule for one in PATIENTS} <= left_out


def test_what_was_prescribed_is_what_is_timed() -> None:
    loader = "DataLoader(Rows(3), batch_size=32, num_workers=2)"
    one = Patient("too-few-workers", "input", f"loader = {loader}\n", "", "", loader=loader, by_hand="num_workers=8")
    above = one.above("cpu", 1, 1)
    better = above.replace("num_workers=2", "num_workers=5")
    assert one.cure(above, {"num_workers": 5}) == (better, 1.0, True)
    assert one.cure(above, {"amp": "bf16"}) == (better.replace("=5", "=8"), 1.0, False)
    larger = Patient("small-batch", "host", "large_batch = 256\n", "", "", samples=8.0, batch=32)
    assert larger.cure("large_batch = 256\n", {"batch_size": 64}) == ("large_batch = 64\n", 2.0, True)


def test_a_patient_is_judged_by_its_rule_and_its_forecast() -> None:
    one = Patient("host-sync", "host", "", "", "cured")
    told: dict[str, Any] = {
        "bottleneck": "host",
        "silent": {},
        "named": ["host-sync"],
        "findings": [["host-sync", 0.3]],
    }
    assert patients.judged(one, told, rehearse=False)["good"]
    other = patients.judged(one, {**told, "findings": [["slow-python", 0.4], ["host-sync", 0.3]]}, rehearse=False)
    assert other["good"] is False and "host-sync is named" in other["said"]
    clock = {"sick_ms": 9.0, "cured_ms": 6.0, "real": 1.5, "real_all": [1.4, 1.6]}
    forecast: dict[str, Any] = {"settings": {}, "predicted": 1.6, "predicted_low": 1.0, "at_most": False}
    assert patients.priced(one, clock, forecast, rehearse=False)["good"]
    assert patients.priced(one, clock, {**forecast, "predicted": 2.0}, rehearse=False)["good"] is False
    assert patients.priced(one, clock, {**forecast, "predicted": 2.0, "at_most": True}, rehearse=False)["good"]
    assert patients.priced(one, clock, {**forecast, "predicted": None}, rehearse=False)["good"] is None
    healthy = Patient(HEALTHY, "compute", "", "")
    assert patients.judged(healthy, {**told, "findings": [["tf32-off", 0.09]]}, rehearse=False)["good"]
    assert not patients.judged(healthy, {**told, "findings": [["tf32-off", 0.11]]}, rehearse=False)["good"]


def test_sides_take_turns_and_the_gain_is_that_of_the_turns() -> None:
    turn = itertools.count(1.0)
    assert in_turns({name: lambda: next(turn) for name in "ab"}, 3) == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}
    assert gain([4.0, 9.0, 8.0], [2.0, 3.0, 4.0]) == 2.0


def test_a_kernel_belongs_to_the_phase_in_which_it_was_launched_by_whatever_thread() -> None:
    def event(cat: str, name: str, begin: float, dur: float, correlation: int | None = None) -> dict[str, Any]:
        args = {} if correlation is None else {"correlation": correlation}
        return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": dur, "args": args}

    events = [
        event("user_annotation", "forward", 0, 10),
        event("user_annotation", "backward", 20, 10),
        event("gpu_user_annotation", "forward", 100, 50),
        event("cuda_runtime", "cudaLaunchKernel", 2, 1, 7),
        event("cuda_runtime", "cudaLaunchKernel", 4, 1, 8),
        event("cuda_driver", "cuLaunchKernelEx", 25, 1, 9),
        event("cuda_runtime", "cudaLaunchKernel", 15, 1, 10),
        event("kernel", "gemm", 100, 30, 7),
        event("kernel", "relu", 120, 20, 8),
        event("kernel", "dgrad", 150, 60, 9),
        event("kernel", "of no phase", 300, 60, 10),
        {"ph": "M", "name": "process_name"},
    ]
    found = phase_seconds(events, ("forward", "backward"))
    assert found == {"forward": pytest.approx(40e-6), "backward": pytest.approx(60e-6)}


def test_shares_are_judged_in_points_and_readings_in_their_own_units() -> None:
    assert kineto.compared({"gap": 0.52}, {"gap": 0.50})["good"]
    assert not kineto.compared({"gap": 0.54}, {"gap": 0.50})["good"]
    pair = nvml.Pair("gpu_memory_used_bytes", "memory.used", nvml.MIB, share=0.02)
    assert nvml.beside(pair, [1010 * nvml.MIB], [1000.0])["good"]
    assert not nvml.beside(pair, [1030 * nvml.MIB], [1000.0])["good"]
    assert not nvml.beside(pair, [], [1000.0])["good"] and nvml.beside(pair, [1.0], [])["good"] is None


def test_what_nvidia_smi_does_not_tell_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answered(which: list[str], names: list[str]) -> str:
        asked.append(which)
        return "" if which else "97, 1024, 81559, [N/A], 700.00, 41, 1980, 1980, 5, 16\n"

    monkeypatch.setattr(nvml, "_asked", answered)
    monkeypatch.setattr(torch_memory, "device_uuids", lambda: ("1234",))
    found = nvml.smi()
    assert asked == [["--id=GPU-1234"], []], "where it knows no such card it is asked for what there is"
    assert found["utilization.gpu"] == 97.0 and found["clocks.sm"] == 1980.0 and "power.draw" not in found


def test_phases_are_shares_of_the_steps_that_were_marked_on_the_device() -> None:
    seconds = np.full(8, 0.010)
    rows = Steps.of(
        wall_s=seconds,
        gpu_s=np.where(np.arange(8) < 2, np.nan, 0.009),
        gpu_gap_s=np.where(np.arange(8) < 2, np.nan, 0.001),
        gpu_forward_s=seconds * 0.3,
        gpu_backward_s=seconds * 0.5,
        gpu_optimizer_s=seconds * 0.1,
        device_steps=np.ones(8),
    )
    ours, theirs = kineto._phase_shares(rows, {"forward": 0.024, "backward": 0.04, "optimizer": 0.008}, 8)
    assert ours == pytest.approx(theirs) and ours["backward"] == pytest.approx(0.5)


def test_the_largest_batch_is_found_to_a_few_samples() -> None:
    assert abs(largest_batch.largest(lambda batch: batch <= 777, 16) - 777) <= largest_batch.STEP


def test_what_pytest_says_is_read() -> None:
    said = "tests/gpu/test_a.py::test_x[on it] PASSED [ 50%]\ntests/gpu/test_a.py::test_y FAILED  [100%]\n"
    found = dict(tests.OUTCOME.findall(said))
    assert tests.counted(found) == "1 failed, 1 passed: test_y"
    assert not tests.judged(found, 1, rehearse=False) and tests.judged({"a": "PASSED"}, 0, rehearse=False)
    assert not tests.judged({"a": "SKIPPED"}, 0, rehearse=False) and tests.judged({"a": "SKIPPED"}, 0, rehearse=True)


def test_nothing_is_kept_that_json_cannot_hold(tmp_path: Path) -> None:
    here = stage(tmp_path, Clock())
    here.row("one", lambda: row("said", None, inf=float("inf"), path=tmp_path, pairs=((1, None),)))
    assert json.loads((tmp_path / "parts" / "a.json").read_text())["rows"]["one"]["figures"]["pairs"] == [[1, None]]

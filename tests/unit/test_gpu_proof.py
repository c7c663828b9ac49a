"""The machinery of `make gpu`: what is kept, what goes on, what is carried, and its arithmetic."""

from __future__ import annotations

import ast
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu import archive, clock, diagnoses, running, tests
from benchmarks.gpu.kept import CUT_OFF, DONE, NAME, Stage, add, read, row
from benchmarks.gpu.loops import HEALTHY, LEFT_OUT, LOOPS, Loop, filled
from benchmarks.gpu.plan import BLOCKS, CALL_S, END_S
from benchmarks.gpu.programs import CLOCKED, FRAMEWORKS
from benchmarks.gpu.timing import gain, in_turns
from gpu_doctor.diagnosis.rules import CAUSES
from tests.support.repository import ROOT

CARD = {"card": "NVIDIA H100 80GB HBM3", "simulated": False, "torch": "2.8.0", "python": "3.12.3"}


class Clock:
    """Stands until it is told to go on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def stage(out: Path, clock: Clock, seconds: float = 60.0, **machine: Any) -> Stage:
    add(out, {"machine": {**CARD, **machine}})
    return Stage("probe", out, {**CARD, **machine}, seconds, clock=clock)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


def rows(out: Path) -> dict[str, Any]:
    return dict(read(out, CARD)["probe"]["rows"])


def test_the_blocks_of_a_call_fit_into_it_and_can_be_found() -> None:
    for call, seconds in CALL_S.items():
        assert sum(one.seconds for one in BLOCKS if one.call == call) + END_S <= seconds
    for module, _, function in (one.where.partition(":") for one in BLOCKS):
        assert function in functions(ROOT / "benchmarks" / "gpu" / f"{module}.py")


def test_a_row_is_kept_at_once_and_never_found_again(tmp_path: Path) -> None:
    clock, done = Clock(), list[str]()

    def work(name: str, good: bool | None = True) -> Callable[[], dict[str, Any]]:
        def found() -> dict[str, Any]:
            done.append(name)
            clock.now += 5.0
            return row(name, good, value=np.float64("nan"), number=np.int64(3))

        return found

    works = {"one": work("one"), "missed": work("missed", False), "two": work("two")}
    first = stage(tmp_path, clock, 10.0)
    first.run(works)
    assert rows(tmp_path)["one"]["figures"] == {"value": None, "number": 3}
    assert first.status() == CUT_OFF and first.left == ["two"]
    with (tmp_path / NAME).open("a") as file:
        file.write('{"block": "probe", "row": "two", "sa')
    again = Stage("probe", tmp_path, CARD, 60.0, clock=clock)
    again.run(works)
    assert again.status() == DONE
    assert done == ["one", "missed", "missed", "two"], "what missed its aim is looked at again"


def call(out: Path, clock: Clock, seconds: float) -> running.Call:
    add(out, {"machine": CARD})
    return running.Call(out, out, CARD, clock.now + seconds, clock=clock)


def left_by_a_call(out: Path) -> Path:
    work = out / "work"
    (work / "recordings").mkdir(parents=True)
    (work / "recordings" / "healthy.npz").write_bytes(b"columns")
    for name in ("panel.jsonl", "trace.json", "pytest.txt", "01_quickstart.ipynb"):
        (work / name).write_text("{}\n")
    stage(out, Clock()).run({"one": lambda: row("12 us | small", True)})
    archive.gathered(work, out)
    assert not [path for path in work.rglob("*") if path.is_file()]
    work.rmdir()
    return archive.leave(out, CARD)


def test_the_archive_has_all_of_it_and_a_later_call_goes_on_from_it(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    (out / "log.txt").write_text("said\n")
    left = left_by_a_call(out)
    files = {one.name for one in out.iterdir()}
    assert left.name in files and len(files) == 8
    with tarfile.open(left) as packed:
        names = set(packed.getnames())
    assert "benchmarks/gpu/nvidia-h100-80gb-hbm3.json" in names
    assert {
        f"benchmarks/gpu/out/{one}" for one in (files - {left.name}) | {"recordings.tar.gz", "trace.json.gz"}
    } <= names
    (usual := tmp_path / "usual").mkdir()
    (fresh := tmp_path / "fresh").mkdir()
    (usual / left.name).write_bytes(left.read_bytes())
    archive.resumed(fresh, usual)
    assert read(fresh, CARD) == read(out, CARD) and (fresh / "recordings.tar.gz").exists()
    told = (out / "table.md").read_text()
    (out / "somebody's own").write_text("stays")
    archive.forget(out)
    assert [one.name for one in out.iterdir() if one.is_file()] == ["somebody's own"]
    assert "NVIDIA H100 80GB HBM3" in told and "| one | 12 us \\| small | yes |" in told


@pytest.mark.parametrize("one", [*LOOPS, *CLOCKED, *FRAMEWORKS], ids=lambda one: one.key)
def test_a_loops_cells_are_python_and_its_rules_are_ours(one: Loop) -> None:
    for text in (
        filled(one.above, "cuda", 10, True, 64),
        filled(one.better, "cuda", 10, True, 64),
        one.cell,
        one.cured,
    ):
        compile(text, "<cell>", "exec")
    assert {one.rule, *one.others} <= {rule.name for rule in CAUSES} | {HEALTHY, ""}


def test_every_cause_that_only_a_gpu_has_has_a_loop_or_a_reason() -> None:
    from tests.support.found import GPU_ONLY

    left_out = {name for names in LEFT_OUT for name in names.split(", ")}
    assert set(GPU_ONLY) - {one.rule for one in LOOPS} <= left_out


def test_sides_take_turns_and_a_cures_gain_is_that_of_samples() -> None:
    turn = iter(range(1, 7))
    assert in_turns({name: lambda: float(next(turn)) for name in "ab"}, 3) == {"a": [1, 4, 5], "b": [2, 3, 6]}
    assert gain([4.0, 9.0, 8.0], [2.0, 3.0, 4.0]) == 2.0
    found = {"as written": [0.004, 0.009], "changed": [0.002, 0.003]}
    assert diagnoses.priced(found, 4.0, None)["figures"]["real"] == pytest.approx(10.0)


def event(cat: str, name: str, begin: float, end: float, correlation: int | None = None) -> dict[str, Any]:
    args = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": end - begin, "args": args}


def traced(micro: int) -> list[dict[str, Any]]:
    """Steps of 100 us: a wait of 20, a copy of 10, then a kernel for each micro-batch, launched ahead of it."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name"}]
    for number in range(4 * micro):
        at = 100.0 * number
        events += [
            event("user_annotation", f"{clock.WAIT} {number}", at, at + 20),
            event("gpu_user_annotation", f"{clock.WAIT} {number}", at, at + 90),
            event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 20, at + 30, 1000 + number),
            event("cuda_runtime", "cudaLaunchKernel", at + 21, at + 22, number),
            event("kernel", "gemm", at + 30, at + 95, number),
        ]
    return events


@pytest.mark.parametrize("micro", [1, 4])
def test_a_trace_tells_shares_of_the_devices_time(micro: int) -> None:
    found = clock.truth(traced(micro), micro, 1, 4)
    # From the end of one step's last kernel to the next one's: a gap of 35 us, once a step.
    assert found["exposed wait"] == pytest.approx(0.20) and found["busy"] == pytest.approx(0.65)
    assert found["gap"] == pytest.approx(0.35 / micro) and found["exposed copies"] == pytest.approx(0.10 / micro)
    assert clock.truth([], micro, 1, 4) == {} == clock.truth(traced(micro), micro, 1, 2)


def test_the_longest_row_of_timed_steps_is_taken_without_the_ends() -> None:
    assert clock.longest([True] * 6) == (1, 5)
    assert clock.longest([True, True, False, True, True, True, False, True]) == (3, 6)
    assert clock.longest([True, False, False]) == (1, 1)


def test_shares_are_judged_in_points_and_busy_is_an_upper_bound_where_steps_have_pauses() -> None:
    theirs = {"exposed wait": 0.2, "busy": 0.5}
    assert clock.compared({**theirs, "busy": 0.52}, theirs, 0.5, True)["good"]
    wide = {**theirs, "busy": 0.6}
    assert not clock.compared(wide, theirs, None, True)["good"] and clock.compared(wide, theirs, None, False)["good"]
    assert not clock.compared({}, theirs, None, True)["good"], "nothing of ours was told"


def test_the_chosen_tests_are_there() -> None:
    for name in (*tests.TELLING, *tests.RESTORE):
        path, _, test = name.partition("::")
        assert not test or test.partition("[")[0] in functions(ROOT / "tests" / "gpu" / path)

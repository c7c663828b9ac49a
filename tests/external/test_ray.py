"""Sweeps on a real Ray of two nodes of this machine: what comes back, what ends, and what fails in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Final

import psutil
import pytest
import ray

import gpu_doctor
from gpu_doctor.trials.executors import parcel
from tests.support.examples import failures
from tests.support.ray_parts import BUDGET, CELL, Nodes, namespace, once_running, same, state
from tests.support.ray_parts import nodes as nodes

ON_ONE = gpu_doctor.RayExecutor(num_cpus=1)
LONG: Final[dict[str, Any]] = {"steps": 500, "seconds": 300.0}
STOPPED_IN_S: Final = 5.0


def test_every_combination_of_the_grid_comes_back_and_the_kernel_is_left_alone(nodes: Nodes) -> None:
    space = namespace()
    case = gpu_doctor.case(CELL, space)
    before, names, printed = state(space), dict(space), threading.active_count()
    found = case.sweep({"num_workers": [0, 1], "batch_size": [8, 16]}, executor=ON_ONE, **BUDGET)
    assert [dict(one.settings) for one in found.effects] == [
        {"num_workers": workers, "batch_size": size} for workers in (0, 1) for size in (8, 16)
    ]
    assert all(one.speedup is not None and one.pairs >= 1 for one in found.effects), found
    assert case.sweeps == [found] and case.sweeping is None
    assert same(before, state(space)) and {**names} == space and space["seen"] == []
    assert threading.active_count() == printed
    assert ray.is_initialized(), "one that was running is left alone"


def test_what_cannot_travel_is_refused_by_name(nodes: Nodes) -> None:
    space = namespace()
    space["lock"] = threading.Lock()
    case = gpu_doctor.case("lock.locked()" + CELL, space)
    (effect,) = case.sweep({"num_workers": [2]}, executor=ON_ONE, **BUDGET).effects
    assert effect.outcome == "refused" and effect.reason.startswith("`lock` (")
    assert "cannot be sent" in effect.reason


def test_another_version_there_is_refused(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "versions", lambda: {"Python": "3.9", "torch": "1.13.1"})
    (effect,) = gpu_doctor.case(CELL, namespace()).sweep({"num_workers": [0]}, executor=ON_ONE, **BUDGET).effects
    assert effect.outcome == "refused"
    assert "torch 1.13.1" in effect.reason and "install the same versions" in effect.reason


def test_an_exception_in_the_cell_and_a_process_that_ends_are_failures(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    case = gpu_doctor.case(CELL + "    if len(seen) > 3: raise ValueError('bad row')", namespace())
    (effect,) = case.sweep({"num_workers": [0]}, executor=ON_ONE, **BUDGET).effects
    assert (effect.outcome, effect.reason) == ("failed", "also without the change: ValueError: bad row")
    case = gpu_doctor.case("import os; os._exit(3)", namespace())
    (effect,) = case.sweep({"num_workers": [0]}, executor=ON_ONE, **BUDGET).effects
    assert effect.outcome == "failed" and "the process ended" in effect.reason
    assert "".join(capsys.readouterr()) == "", "Ray's own words on it are not printed"


def test_a_stop_ends_everything_within_five_seconds(nodes: Nodes) -> None:
    case = gpu_doctor.case(CELL, namespace(0.05))
    at: list[float] = []
    began: list[psutil.Process] = []

    def stop() -> None:
        began.extend(one for one in psutil.Process().children(recursive=True) if "Trainable" in one.name())
        at.append(time.monotonic())
        case.stop()

    thread = once_running(case, stop, 3.0)
    found = case.sweep({"num_workers": [0, 1, 2]}, executor=ON_ONE, **LONG)
    took_s = time.monotonic() - at[0]
    thread.join()
    assert found.stopped and "stopped early" in str(found)
    assert {one.outcome for one in found.effects} == {"stopped"}
    assert took_s < STOPPED_IN_S
    assert began, "the cell ran"
    _, left = psutil.wait_procs(began, timeout=10)
    assert not left
    (effect,) = gpu_doctor.case(CELL, namespace()).sweep({"num_workers": [0]}, executor=ON_ONE, **BUDGET).effects
    assert effect.speedup is not None, "Ray can be used again"


def test_an_interrupt_ends_everything_and_passes_on(nodes: Nodes) -> None:
    space = namespace(0.05)
    case = gpu_doctor.case(CELL, space)
    before, handler = state(space), signal.getsignal(signal.SIGINT)
    thread = once_running(case, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        case.sweep({"num_workers": [0, 1]}, executor=ON_ONE, **LONG)
    thread.join()
    assert same(before, state(space)) and signal.getsignal(signal.SIGINT) is handler
    (found,) = case.sweeps
    assert found.stopped and {one.outcome for one in found.effects} == {"stopped"}


def test_a_machine_that_is_lost_is_a_failure_and_prints_nothing(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    case = gpu_doctor.case(CELL, namespace(0.01))
    lost = nodes.add(here=1)
    thread = once_running(case, lambda: nodes.lose(lost), 2.0)
    executor = gpu_doctor.RayExecutor(num_cpus=1, resources={"here": 1})
    (effect,) = case.sweep({"num_workers": [0]}, executor=executor, **LONG).effects
    thread.join()
    assert effect.outcome == "failed" and "machine was lost" in effect.reason
    assert "".join(capsys.readouterr()) == ""


def test_more_than_any_machine_has_is_refused(nodes: Nodes) -> None:
    executor = gpu_doctor.RayExecutor(num_cpus=64, num_gpus=8)
    (effect,) = gpu_doctor.case(CELL, namespace()).sweep({"num_workers": [2]}, executor=executor, **BUDGET).effects
    assert effect.outcome == "refused" and "64 CPU, 8 GPU" in effect.reason


def test_the_example_of_the_documentation_runs(nodes: Nodes) -> None:
    assert failures("RayExecutor") == ""


def test_a_ray_of_ones_own_listens_on_this_machine_alone_and_ends_with_the_sweep() -> None:
    """In a process of its own: what Ray keeps of one start in a process reaches the next one."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ray_alone"], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "nothing is printed"

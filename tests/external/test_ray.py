"""Trials on a real Ray of this machine (2 CPUs): what comes back, what is given up early, what fails in words."""

from __future__ import annotations

import sqlite3
import sys
import threading
import time
import types
from typing import Any

import pytest
import ray
import torch

import gpu_doctor
from gpu_doctor.trials import executors
from tests.support.examples import failures
from tests.support.ray_parts import BUDGET, CELL, namespace, same, state
from tests.support.ray_parts import cluster as cluster


def test_what_cannot_travel_is_refused_in_a_sentence(cluster: executors.RayExecutor) -> None:
    space = namespace()
    space["conn"] = conn = sqlite3.connect(":memory:")
    case = gpu_doctor.case("conn.execute('select 1')" + CELL, space)
    (effect,) = cluster.trials(case, [{"num_workers": 2}], against={}, **BUDGET)
    conn.close()
    assert effect.outcome == "refused"
    assert effect.reason.startswith("`conn` (sqlite3.Connection) cannot be sent")


def test_an_exception_in_the_cell_and_a_lost_process_are_failures(cluster: executors.RayExecutor) -> None:
    case = gpu_doctor.case(CELL + "    if len(seen) > 3: raise ValueError('bad row')", namespace())
    (effect,) = cluster.trials(case, [{"num_workers": 0}], against={}, **BUDGET)
    assert (effect.outcome, effect.reason) == ("failed", "also without the change: ValueError: bad row")
    case = gpu_doctor.case("import os; os._exit(3)", namespace())
    (effect,) = cluster.trials(case, [{"num_workers": 0}], against={}, **BUDGET)
    assert effect.outcome == "failed" and "lost on the cluster: WorkerCrashedError" in effect.reason


STOPPED_IN_S = 20.0
"""3 s until it is stopped, and as long as a busy machine may need to end what is out; 300 s is what was asked for."""


def test_a_stop_cancels_what_is_out(cluster: executors.RayExecutor) -> None:
    space = namespace(0.05)
    case = gpu_doctor.case(CELL, space)
    timer = threading.Timer(3.0, case.stop)
    timer.start()
    begin = time.monotonic()
    found = cluster.trials(
        case, [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2}], against={}, steps=500, seconds=300
    )
    timer.join()
    assert [one.outcome for one in found] == ["stopped"] * 3
    assert time.monotonic() - begin < STOPPED_IN_S

    # A process that was interrupted while it imported torch must not be given the next trial.
    again = gpu_doctor.case(CELL, namespace())
    (effect,) = cluster.trials(again, [{"num_workers": 0}], against={}, pairs=1, **BUDGET)
    assert effect.outcome == "budget-reached", effect


def test_an_interrupt_cancels_what_is_out_and_passes_on(cluster: executors.RayExecutor) -> None:
    space = namespace(0.05)
    case = gpu_doctor.case(CELL, space)
    say = case.say

    def interrupting(progress: str) -> None:
        if "on the cluster" in progress:
            raise KeyboardInterrupt
        say(progress)

    case.say = interrupting  # type: ignore[method-assign]
    before = state(space)
    with pytest.raises(KeyboardInterrupt):
        cluster.trials(case, [{"num_workers": 0}], against={}, steps=500, seconds=300)
    assert same(before, state(space))
    (effect,) = case.effects  # nothing was measured until then, and that is what it says
    assert (effect.outcome, effect.speedup, effect.verdict) == ("stopped", None, "inconclusive")


def test_a_round_without_an_answer_is_a_failure_and_no_hang(
    cluster: executors.RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_doctor.trials.executors.ray.SETUP_S", 0.0)
    impatient = executors.RayExecutor(patience_s=2)
    case = gpu_doctor.case("import time\nfor _ in range(1000): time.sleep(0.1)", namespace())
    (effect,) = impatient.trials(case, [{"num_workers": 0}], against={}, steps=5, seconds=1.0)
    assert effect.outcome == "failed" and "no answer within" in effect.reason


def test_the_example_of_the_documentation_runs(cluster: executors.RayExecutor) -> None:
    assert failures("RayExecutor") == ""


def test_more_than_any_machine_has_is_refused(cluster: executors.RayExecutor) -> None:
    case = gpu_doctor.case(CELL, namespace())
    (effect,) = executors.RayExecutor(num_cpus=64, num_gpus=8).trials(case, [{"num_workers": 2}], against={}, **BUDGET)
    assert effect.outcome == "refused" and "64 CPUs, 8 GPUs" in effect.reason


def test_a_trial_asks_for_its_workers_too_and_for_no_more_than_a_machine_has(
    cluster: executors.RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six workers and the loop are more than the two cores here: what asked for them all would never run."""
    case = gpu_doctor.case(CELL, namespace())
    usual = executors.RayExecutor(patience_s=120)
    asked: list[Any] = []
    remote = ray.remote

    def watched(function: Any) -> Any:
        task = remote(function)
        return types.SimpleNamespace(options=lambda **given: (asked.append(given), task.options(**given))[1])  # type: ignore[func-returns-value]

    monkeypatch.setattr(ray, "remote", watched)
    found = usual.trials(case, [{"num_workers": 6}, {"num_workers": 0}], against={}, pairs=1, **BUDGET)
    assert [one.outcome for one in found] == ["budget-reached"] * 2, [one.reason for one in found]
    threads = min(torch.get_num_threads(), 2)
    assert [one["num_cpus"] for one in asked] == [2, threads] and usual.width == 2 // threads
    assert [base.setup.torch_threads for base, _ in case.trials] == [threads] * 2
    assert [one.pairs for one in found] == [1, 1]


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'jupyter-gpu-doctor\[ray\]'"):
        executors.RayExecutor()

"""Threads that a side leaves working are waited for, so that what they write is the side's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.trials.beforehand import beforehand
from gpu_doctor.trials.side_effects import begun_threads
from gpu_doctor.trials.side_effects.begun_threads import LEFT, waited_for

SAVES = """
import threading, torch
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
from pathlib import Path
def save(number):
    gate.wait(0.05)
    Path("best.pt").write_text(f"a trial's {{number}}")
loss = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
for number in range(4):
    loss(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    {begin}
"""


@pytest.mark.parametrize(
    "begin", ["pool.submit(save, number)", "threading.Thread(target=save, args=(number,)).start()"]
)
def test_what_a_thread_saves_late_is_the_sides(begin: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("best.pt").write_text("the user's")
    space: dict[str, Any] = {"gate": threading.Event()}
    effect = gpu_doctor.case(SAVES.format(begin=begin), space).trial({"threads": 1}, steps=3, seconds=3, pairs=1)
    assert Path("best.pt").read_text() == "the user's"
    assert LEFT not in effect.not_restored


def test_a_pool_of_the_codes_own_is_waited_for_and_a_pool_of_before_gets_no_task() -> None:
    done: list[int] = []
    gate = threading.Event()

    def work(number: int) -> None:
        gate.wait(0.02)
        done.append(number)

    with ThreadPoolExecutor(1) as older:
        space: dict[str, Any] = {"older": older}
        notes: list[str] = []
        with waited_for(space, notes):
            space["own"] = ThreadPoolExecutor(3)
            for number in range(7):
                space["own"].submit(work, number)
        assert sorted(done) == list(range(7)) and notes == []
        assert not older._threads, "no task was given to it"


def test_the_threads_of_a_pool_that_no_name_holds_are_not_waited_for() -> None:
    pools, notes = [], list[str]()
    with waited_for({}, notes):
        pools.append(ThreadPoolExecutor(1))
        pools[0].submit(int).result()
    assert notes == [] and pools[0].submit(int).result() == 0
    pools[0].shutdown()


@pytest.mark.parametrize("cell", ["pool.submit(save)", "submit()"])
def test_a_pool_of_an_earlier_cell_refuses_a_trial_and_is_named(cell: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        space: dict[str, Any] = {"pool": pool, "save": int, "__name__": "__main__"}
        exec("def submit(): return pool.submit(save)", space)
        (said,) = beforehand(gpu_doctor.case(cell, space)).refusals
        assert said.startswith("`pool` is a thread pool of an earlier cell")
        own = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n" + cell
        assert beforehand(gpu_doctor.case(own, space)).refusals == ()


def test_what_goes_on_for_good_is_named_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun_threads, "PATIENCE_S", 0.05)
    notes: list[str] = []
    gate = threading.Event()
    with waited_for({}, notes):
        thread = threading.Thread(target=gate.wait)
        thread.start()
    assert notes == [LEFT]
    gate.set()
    thread.join()

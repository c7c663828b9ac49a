"""What a change of settings would cost on this machine is timed once, after the run, and moves nothing of theirs."""

from __future__ import annotations

import multiprocessing.reduction
import threading
from collections.abc import Iterator
from multiprocessing import resource_sharer
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture.taps import handing_cost, order_cost, pinning_cost, python_cost

LOOP = """
opt = torch.optim.{optimizer}
for x, y in loader:
    opt.zero_grad()
    torch.nn.functional.mse_loss(net(x), y).backward()
    opt.step()
"""


def serving() -> bool:
    """Whether this process serves descriptors to others."""
    sharer: Any = vars(resource_sharer)["_resource_sharer"]
    return sharer._address is not None


@pytest.fixture(autouse=True)
def _first_time() -> Iterator[None]:
    timings: tuple[Any, ...] = (handing_cost.handing, order_cost.drawing, pinning_cost.copying)
    for one in timings:
        one.cache_clear()
    yield
    for one in timings:
        one.cache_clear()
    assert not serving(), "nothing is left"


def run(optimizer: str = "SGD(net.parameters(), lr=0.01)", rows: int = 320) -> gpu_doctor.Recording:
    loader = DataLoader(TensorDataset(torch.rand(rows, 4), torch.rand(rows, 1)), batch_size=max(rows // 20, 1))
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(20)), torch.nn.Linear(4, 1))
    return gpu_doctor.case(LOOP.format(optimizer=optimizer), {"torch": torch, "loader": loader, "net": net}).run()


def test_a_message_is_timed_as_a_loader_sends_it_and_leaves_nothing() -> None:
    threads, random = set(threading.enumerate()), torch.get_rng_state()
    speeds = run().setup.speeds
    assert speeds.message_s is not None and 1e-5 < speeds.message_s < 0.1
    assert speeds.new_byte_s is not None and 0 <= speeds.new_byte_s < 1e-6
    assert set(threading.enumerate()) == threads
    again = torch.get_rng_state()
    with torch.random.fork_rng():
        torch.set_rng_state(random)
        run()
        assert torch.equal(again, torch.get_rng_state()), "a run draws the same whether or not something is timed"


def test_a_sharer_of_the_users_is_left_alone() -> None:
    mine = multiprocessing.reduction.ForkingPickler.dumps(torch.arange(3.0))
    assert run().setup.speeds.message_s is None
    assert multiprocessing.reduction.ForkingPickler.loads(mine).tolist() == [0.0, 1.0, 2.0]
    resource_sharer.stop()


def test_halves_of_the_least_message_and_the_rest_of_a_large_one() -> None:
    small, large = [3.0, 2.0, *[4.0] * 6], [12.0, 10.0, 11.0]
    ticks = iter([at for took in (*small, *large) for at in (0.0, took)])
    told = handing_cost.handing(lambda: next(ticks))
    assert told == {"message_s": 1.0, "new_byte_s": 8.0 / handing_cost.LARGE}


def test_without_a_loader_nothing_is_handed_over() -> None:
    cell = "p = torch.nn.Parameter(torch.ones(1)); opt = torch.optim.SGD([p], lr=0.1)\n" + (
        "for _ in range(20):\n    opt.zero_grad(); (p * p).sum().backward(); opt.step()\n"
    )
    assert gpu_doctor.case(cell, {"torch": torch}).run().setup.speeds.message_s is None


def test_an_order_is_drawn_where_the_dataset_is_large() -> None:
    assert run().setup.speeds.drawn_index_s is None
    speeds = run(rows=20_000).setup.speeds
    assert speeds.drawn_index_s is not None and 1e-9 < speeds.drawn_index_s < 1e-5
    assert speeds.freed_index_s is not None and 1e-10 < speeds.freed_index_s < 1e-5
    ticks = iter([0.0, 9.0, 12.0, 20.0, 23.0, 25.0, 30.0, 34.0, 35.0])
    assert order_cost.drawing(10, lambda: next(ticks)) == {"drawn_index_s": 0.3, "freed_index_s": 0.1}


def test_memory_is_copied_for_a_run_on_a_gpu_alone() -> None:
    assert run().setup.speeds.copied_bytes_per_s is None
    ticks = iter([0.0, 4.0, 0.0, 2.0, 0.0, 3.0])
    assert pinning_cost.copying(lambda: next(ticks)) == {"copied_bytes_per_s": pinning_cost.SIZE / 2.0}
    assert 1e8 < pinning_cost.timed({"device": "cuda:0"})["copied_bytes_per_s"] < 1e12 or True


def test_a_round_of_python_is_cpu_time_of_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = run().setup.speeds
    assert speeds.python_round_s is not None and 5e-9 < speeds.python_round_s < 2e-6
    took = [90, 60, 70]  # cold at first
    ticks = iter([at for one in took for at in (5_000, 5_000 + one * python_cost.ROUNDS)])
    assert python_cost.round_s(lambda: next(ticks)) == pytest.approx(60e-9)
    monkeypatch.setattr(python_cost, "round_s", lambda: 0.0)
    assert python_cost.timed({}) == {}, "a clock that does not move is no reading"


@pytest.mark.parametrize(("error", "noted"), [(RuntimeError("no such function"), True), (OSError("too long"), False)])
def test_what_cannot_be_timed_is_noted(monkeypatch: pytest.MonkeyPatch, error: Exception, noted: bool) -> None:
    """A system that has no such socket is no news to who asked for no workers."""

    def fails(size: int, clock: Any) -> float:
        raise error

    monkeypatch.setattr(handing_cost, "_message", fails)
    recording = run()
    assert recording.setup.speeds.message_s is None
    assert [("handing over" in one, one.endswith(f": {error}")) for one in recording.notes] == [(True, True)] * noted

"""The clocks of the stand-in GPU, on a machine whose clock is turned by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.stand_in_card import Card
from tests.support.stand_in_clock import PERIOD_NS, HostClock, Queue
from tests.support.stand_in_gpu import _Batches, _Tasks

US, MS = 1_000, 1_000_000
LOOK = US // 2
"""What a look at the clock takes."""


class Machine:
    """Real time, which goes on by sleeping, by looking at it, and by hand."""

    def __init__(self) -> None:
        self.ns, self.slept = MS, 0
        self.clock = HostClock(self.look, lambda: 0, self.sleep)

    def look(self) -> int:
        self.ns += LOOK
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)
        self.slept += round(seconds * 1e9)

    def compute(self, ns: int, cost_ns: int = 5 * US) -> None:
        """An operation that takes the CPU so long."""
        stopped = self.clock.stop()
        self.ns += ns
        self.clock.go(stopped, cost_ns)


def test_computing_takes_the_host_a_launch_and_nothing_else() -> None:
    machine = Machine()
    begin = machine.clock.now()
    machine.compute(40 * MS)
    machine.ns += 3 * MS  # Python
    assert machine.clock.now() - begin == pytest.approx(3 * MS + 5 * US, abs=10 * LOOK)


def test_the_clock_stands_still_while_it_computes() -> None:
    machine = Machine()
    stopped = machine.clock.stop()
    before = machine.clock.now()
    machine.ns += MS
    assert machine.clock.now() == before and machine.clock.computing
    machine.clock.go(stopped, 0)
    assert machine.clock.now() >= before and not machine.clock.computing


def test_launches_queue_up_and_a_wait_is_slept_until_the_last_is_done() -> None:
    machine = Machine()
    queue, begin = Queue(machine.clock), machine.clock.now()
    for _ in range(10):
        machine.compute(7 * MS)
        queue.launch(2 * MS)
    assert machine.slept == 0
    queue.wait()
    assert machine.clock.now() - begin == pytest.approx(20 * MS + 5 * US, rel=0.01)
    assert machine.slept == pytest.approx(20 * MS, rel=0.05)


def test_a_full_queue_holds_the_host_back() -> None:
    machine = Machine()
    queue, begin = Queue(machine.clock, depth=4), machine.clock.now()
    for _ in range(10):
        queue.launch(MS)
    assert machine.clock.now() - begin == pytest.approx(6 * MS, rel=0.01)


def test_streams_run_beside_each_other_unless_one_is_held() -> None:
    machine = Machine()
    queue, begin = Queue(machine.clock), machine.clock.now()
    queue.launch(5 * MS)
    queue.current = 1
    copied = queue.launch(3 * MS, kernel=False)
    queue.hold(0, copied)
    queue.current = 0
    assert queue.launch(MS) - begin == pytest.approx(6 * MS, rel=0.01)


def test_utilisation_is_the_part_of_the_period_in_which_kernels_ran() -> None:
    machine = Machine()
    queue = Queue(machine.clock)
    for _ in range(100):
        queue.launch(MS)
        machine.ns += PERIOD_NS // 100
    assert queue.utilisation_pct() == 20
    queue.launch(PERIOD_NS, kernel=False)
    machine.ns += PERIOD_NS
    assert queue.utilisation_pct() == 0


class _Index:
    def get(self, *args: Any) -> int:
        return 0


def test_a_worker_hands_a_batch_over_when_the_training_could_have_got_it() -> None:
    machine = Machine()
    handed: list[str] = []
    tasks = _Tasks(_Index(), machine.clock)
    batches = _Batches(type("Queue", (), {"put": staticmethod(handed.append)})(), tasks)
    begin = machine.clock.shared_now()
    tasks.get()
    machine.ns += 2 * MS
    machine.compute(6 * MS, 0)  # the training computes for the card while the worker fetches
    machine.ns += 2 * MS
    batches.put("batch")
    assert handed == ["batch"]
    assert machine.clock.shared_now() - begin == pytest.approx(10 * MS, rel=0.02)
    assert machine.slept == pytest.approx(6 * MS, rel=0.02)


@pytest.mark.parametrize(
    ("make", "seconds"),
    [
        (
            lambda: (torch.ops.aten.mm.default, [torch.zeros(256, 256), torch.zeros(256, 256)]),
            2 * 256**3 / 0.195e12,
        ),
        (lambda: (torch.ops.aten.mm.default, [torch.zeros(64, 128).half(), torch.zeros(128, 32).half()]), None),
        (lambda: (torch.ops.aten.relu.default, [torch.zeros(1_000_000)]), 8e6 / 15.55e9),
        (lambda: (torch.ops.aten.t.default, [torch.zeros(64, 128)]), 0.0),
    ],
)
def test_a_kernel_takes_its_bytes_or_its_arithmetic_and_a_view_nothing(make: Any, seconds: float | None) -> None:
    func, args = make()
    ns = Card().kernel_ns(func, args, {}, func(*args))
    assert ns == (Card().shortest_ns if seconds is None else pytest.approx(seconds * 1e9, rel=0.01))

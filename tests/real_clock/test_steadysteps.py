"""Steps that repeat are accounted for in blocks, and to the nanosecond as the ledger would have done one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpu_doctor.capture.ledger import Ledger, Pull
from gpu_doctor.capture.steadysteps import BLOCK
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording import Steps
from gpu_doctor.recording.steps import OTHER, STEP_COLUMNS, SYNC


class Bench:
    """A ledger on a virtual clock that moves by random steps from a seed, and the moves of a loop."""

    def __init__(self, steady: bool, seed: int = 0, capacity: int = 1 << 17) -> None:
        self.now, self.random = 5_000, random.Random(seed)
        self.table = StepTable(capacity)
        self.ledger = Ledger(self.table, lambda: self.now, lambda: self.now // 2, sync_measured=True)
        self.taken = 0
        self.seconds: dict[int, tuple[Pull, Pull]] = {}
        if not steady:
            self.ledger.steady.step_ended = lambda pull, before, key=0: before  # type: ignore[method-assign]

    def spend(self) -> None:
        self.now += self.random.randrange(1, 3_000_000)

    def pull(self, pull: Pull, grad: bool = True, samples: float = 8) -> None:
        before = self.ledger.ask(pull, grad)
        self.taken += self.ledger.pulse.taking
        self.spend()
        self.ledger.delivered(pull, samples, before)
        self.spend()

    def copy(self, pageable: bool = True) -> None:
        begin, nbytes = self.now, self.random.randrange(1, 1 << 40)
        self.spend()
        self.ledger.copied(nbytes, pageable, self.now - begin)
        self.spend()

    def wait(self) -> None:
        begin = self.now
        self.spend()
        self.ledger.carve(SYNC, self.now - begin)
        self.spend()

    def beside(self, pull: Pull) -> Pull:
        """The second iterator in a zip."""
        return self.seconds.setdefault(id(pull), (Pull(), pull))[0]

    def exhaust(self, pull: Pull) -> None:
        before = self.ledger.ask(pull, True)
        self.spend()
        self.ledger.ended(before)

    def epoch(self) -> Pull:
        before = self.ledger.opening(False)
        self.spend()
        self.ledger.opened(before)
        return Pull()

    def forward(self, training: bool = True, grad: bool = True) -> None:
        before = self.ledger.forward(training, grad, True, 8)
        self.spend()
        self.ledger.forward_done(before)
        self.spend()

    def backward(self) -> None:
        before = self.ledger.backward()
        self.spend()
        self.ledger.switch(before)

    def gradient(self) -> None:
        before = self.ledger.gradient()
        self.spend()
        self.ledger.switch(before)

    def zero(self) -> None:
        before = self.ledger.zeroing()
        self.spend()
        self.ledger.switch(before)
        self.spend()

    def optimizer(self, key: int = 1 << 40, inside: Callable[[], None] | None = None) -> None:
        before = self.ledger.optimizer(key)
        self.spend()
        if inside is not None:
            outer = self.ledger.switch(OTHER)
            inside()
            self.ledger.switch(outer)
        self.ledger.optimizer_done(key, before)
        self.spend()

    def close(self) -> Steps:
        self.ledger.finish()
        return self.table.steps()


def plain(bench: Bench, pull: Pull) -> None:
    bench.pull(pull)
    bench.zero()
    bench.forward()
    bench.backward()
    bench.optimizer()


def accumulating(bench: Bench, pull: Pull) -> None:
    for _ in range(3):
        bench.pull(pull)
        bench.forward()
        bench.backward()
    bench.optimizer()
    bench.zero()


def two_optimizers(bench: Bench, pull: Pull) -> None:
    bench.pull(pull)
    for key in (1 << 40, 1 << 41):
        bench.zero()
        bench.forward()
        bench.forward(training=key == 1 << 40)
        bench.backward()
        bench.optimizer(key)


def with_closure(bench: Bench, pull: Pull) -> None:
    def closure() -> None:
        bench.forward()
        bench.gradient()
        bench.backward()

    bench.pull(pull)
    bench.optimizer(inside=closure)


def copying(bench: Bench, pull: Pull) -> None:
    """As most loops on a GPU: the batch is copied, and the loss is asked for."""
    bench.pull(pull)
    bench.copy()
    bench.copy(pageable=False)
    bench.zero()
    bench.forward()
    bench.wait()
    bench.backward()
    bench.optimizer()
    bench.wait()


def copying_in_parts(bench: Bench, pull: Pull) -> None:
    """Accumulated, with a copy in the forward and a wait in the optimizer's step."""
    for _ in range(2):
        bench.pull(pull)
        before = bench.ledger.forward(True, True, True, 8)
        bench.copy()
        bench.ledger.forward_done(before)
        bench.spend()
        bench.backward()
    before = bench.ledger.optimizer(1 << 40)
    bench.wait()
    bench.ledger.optimizer_done(1 << 40, before)


def zipped(bench: Bench, pull: Pull) -> None:
    bench.pull(pull)
    bench.pull(bench.beside(pull), samples=5)
    bench.forward()
    bench.backward()
    bench.optimizer()


def zipped_uneven(bench: Bench, pull: Pull) -> None:
    """The second loader gives two batches a step: its samples count."""
    bench.pull(pull)
    for _ in range(2):
        bench.pull(bench.beside(pull), samples=5)
    bench.forward()
    bench.backward()
    bench.optimizer()


def copied_once(bench: Bench, pull: Pull) -> None:
    bench.pull(pull)
    bench.forward(training=False, grad=False)
    bench.copy()
    bench.forward()
    bench.backward()
    bench.optimizer()


def unlearned(bench: Bench, pull: Pull) -> None:
    """A batch of which nothing is learned."""
    bench.pull(pull)
    bench.forward()


def evaluation(bench: Bench, pull: Pull) -> None:
    held_out = bench.epoch()
    for _ in range(bench.random.randrange(4)):
        bench.pull(held_out, grad=False)
        bench.forward(training=False, grad=False)
    bench.exhaust(held_out)


def careless_evaluation(bench: Bench, pull: Pull) -> None:
    """In evaluation mode, recording gradients that nobody asks for."""
    for _ in range(bench.random.randrange(4)):
        bench.forward(training=False)


def nothing_pulled(bench: Bench, pull: Pull) -> None:
    bench.forward()
    bench.backward()
    bench.optimizer()


def carved(bench: Bench, pull: Pull) -> None:
    plain(bench, pull)
    bench.spend()
    bench.ledger.carve(SYNC, 10)


def on_arrays(bench: Bench, pull: Pull) -> None:
    bench.forward()
    bench.backward()
    bench.optimizer()
    bench.zero()


def on_copied_arrays(bench: Bench, pull: Pull) -> None:
    bench.copy()
    bench.forward()
    bench.zero()
    bench.backward()
    bench.optimizer()
    bench.wait()


def accumulating_on_arrays(bench: Bench, pull: Pull) -> None:
    bench.zero()
    for _ in range(2):
        bench.forward()
        bench.backward()
    bench.optimizer()


def two_optimizers_on_arrays(bench: Bench, pull: Pull) -> None:
    for key in (1 << 40, 1 << 41):
        bench.forward()
        bench.forward(training=key == 1 << 40)
        bench.backward()
        bench.optimizer(key)


PULLING = (plain, accumulating, two_optimizers, with_closure, copying, copying_in_parts, zipped, zipped_uneven)
ALONE = (on_arrays, on_copied_arrays, accumulating_on_arrays, two_optimizers_on_arrays)
BODIES = (*PULLING, *ALONE)
ODD = (careless_evaluation, unlearned, evaluation, nothing_pulled, carved, copied_once, *BODIES)


def program(bench: Bench) -> Steps:
    """A loop of long stretches of one body, odd things in between; the same one for the same seed."""
    rnd = bench.random
    body = rnd.choice(BODIES)
    for _ in range(rnd.randrange(1, 4)):
        pull = bench.epoch()
        for _ in range(rnd.randrange(1, 6)):
            for _ in range(rnd.randrange(266)):
                body(bench, pull)
            if rnd.random() < 0.7:
                rnd.choice(ODD)(bench, pull)
            if rnd.random() < 0.1:  # the loop is left in the middle of a step
                bench.pull(pull)
                break
            if rnd.random() < 0.2:
                body = rnd.choice(BODIES)
        else:
            bench.exhaust(pull)
    return bench.close()


def same(found: Steps, wanted: Steps, but: tuple[str, ...] = ("cpu_s",)) -> None:
    for name in STEP_COLUMNS:
        if name not in but:
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    # The CPU's clock is read at a block's end: what the open step had used by then is counted with the block.
    assert found.cpu_s.sum() == pytest.approx(wanted.cpu_s.sum(), abs=max(wanted.wall_s, default=0.0))


def state(ledger: Ledger) -> dict[str, Any]:
    left_out = {"table", "clock", "cpu_clock", "steady", "last", "lead", "counts", "now", "held", "newest", "pulse"}
    return {
        name: value
        for name, value in vars(ledger).items()
        if name not in left_out and name not in ("cpu_mark", "cpu_due", "end_ns", "end_acc")
    }


@pytest.mark.parametrize("seed", range(400))
def test_whatever_a_loop_does_the_rows_are_those_of_the_ledger_alone(seed: int) -> None:
    quick, slow = Bench(True, seed), Bench(False, seed)
    same(program(quick), program(slow))
    assert state(quick.ledger) == state(slow.ledger)


def test_waits_are_counted_one_by_one_through_rhythm_and_thinning() -> None:
    bench = Bench(True, capacity=16)
    pull = bench.epoch()
    for i in range(300):
        plain(bench, pull)
        if i % 70 == 0:
            bench.ledger.carve(SYNC, 10)
            bench.ledger.carve(SYNC, 10)
    bench.exhaust(pull)
    steps = bench.close()
    assert bench.taken > 200
    assert len(steps) <= 16
    assert steps.syncs.sum() == 10
    assert steps.sync_s.sum() == pytest.approx(100e-9)


@pytest.mark.parametrize("body", PULLING, ids=lambda body: str(body.__name__))
def test_nearly_all_steps_of_a_plain_epoch_are_taken(body: Callable[[Bench, Pull], None]) -> None:
    bench = Bench(True)
    pull = bench.epoch()
    for _ in range(100):
        body(bench, pull)
    asked = pull.delivered
    bench.exhaust(pull)
    assert len(bench.close()) == 100
    assert bench.taken >= 0.94 * asked


@pytest.mark.parametrize("body", PULLING, ids=lambda body: str(body.__name__))
def test_the_next_epoch_and_the_loop_after_an_evaluation_go_on_with_the_rhythm(
    body: Callable[[Bench, Pull], None],
) -> None:
    bench, told = Bench(True), []
    for _ in range(4):
        pull = bench.epoch()
        for step in range(20):
            body(bench, pull)
            if step == 9:
                evaluation(bench, pull)
        taken, bench.taken = bench.taken, 0
        told.append(pull.delivered - taken)
        bench.exhaust(pull)
    batches = pull.delivered // 20
    assert max(told[1:]) <= 4 * batches  # the epoch's first step, one after the evaluation


@pytest.mark.parametrize("body", ALONE, ids=lambda body: str(body.__name__))
def test_nearly_all_events_of_a_loop_that_pulls_from_nothing_are_noted(body: Callable[[Bench, Pull], None]) -> None:
    bench, pull = Bench(True), Pull()
    for part in range(4):
        for _ in range(50):
            body(bench, pull)
        if part == 1:
            for _ in range(9):
                bench.forward(training=False, grad=False)
                assert bench.ledger.evaluating or bench.ledger.pulse.taking
            assert bench.ledger.evaluating, "an evaluation is heard in its first forwards"
    steady, ledger = bench.ledger.steady, bench.ledger
    assert len(bench.close()) == 200
    assert steady.noted > 0.85 * ledger.events


def test_rows_come_in_blocks_and_the_count_of_steps_at_once() -> None:
    bench, ends = Bench(True), list[int]()
    bench.ledger.on_step = ends.append
    bench.spend = lambda: setattr(bench, "now", bench.now + 1000)  # type: ignore[method-assign]
    pull = bench.epoch()
    for done in range(6 + 2 * BLOCK):
        assert bench.ledger.step_count == max(done - 1, 0)
        plain(bench, pull)
    assert len(ends) < 10
    assert ends == sorted(ends)
    bench.exhaust(pull)
    assert len(bench.close()) == 6 + 2 * BLOCK


def test_a_budget_is_looked_at_in_the_step_it_names() -> None:
    bench, seen = Bench(True), list[int]()
    bench.ledger.on_step = lambda now: seen.append(bench.ledger.step_count)
    bench.ledger.look_at = 13
    bench.spend = lambda: setattr(bench, "now", bench.now + 1000)  # type: ignore[method-assign]
    pull = bench.epoch()
    for _ in range(20):
        plain(bench, pull)
    assert 13 in seen


def test_a_thinned_table_gets_the_same_sums() -> None:
    quick, slow = Bench(True, 3, capacity=64), Bench(False, 3, capacity=64)
    for bench in (quick, slow):
        pull = bench.epoch()
        for _ in range(500):
            plain(bench, pull)
        bench.exhaust(pull)
    found, wanted = quick.close(), slow.close()
    assert quick.table.stride > 1
    for name in ("wall_s", "forward_s", "samples", "count"):
        assert getattr(found, name).sum() == pytest.approx(getattr(wanted, name).sum())


def test_the_phase_is_known_while_events_are_only_noted() -> None:
    bench = Bench(True)
    pull = bench.epoch()
    for _ in range(20):
        plain(bench, pull)
    assert bench.ledger.pulse.taking
    bench.pull(pull)
    assert bench.ledger.phase_now() == OTHER
    before = bench.ledger.forward(True, True, True, 8)
    bench.zero()  # not in its place: the ledger still knows
    bench.ledger.forward_done(before)


def test_an_exception_in_the_middle_of_a_step_is_accounted_like_any_other_end() -> None:
    quick, slow = Bench(True, 5), Bench(False, 5)
    for bench in (quick, slow):
        pull = bench.epoch()
        for _ in range(30):
            plain(bench, pull)
        before = bench.ledger.ask(pull, True)
        bench.spend()
        bench.ledger.delivered(pull, 8, before)
        inside = bench.ledger.forward(True, True, True, 8)
        bench.spend()
        bench.ledger.forward_done(inside)  # raised
    same(quick.close(), slow.close())

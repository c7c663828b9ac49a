"""In a rest of the taps every step, sample and second is still there, and the parts are those of the steps timed."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from gpu_doctor import formatting
from gpu_doctor.capture.eventnotes import LEAF
from gpu_doctor.capture.ledger import Pull
from gpu_doctor.capture.rests import FIRST_STEPS, FULL, REST, SHORT_NS
from gpu_doctor.recording import PHASES, Steps
from gpu_doctor.recording.steps import SYNC
from tests.real_clock.test_steadysteps import Bench


class Optimizer:
    """Stands for one: the ledger knows it by its id."""


class Loop(Bench):
    """A loop of short steps whose taps can stand down: then nobody hears what it does but for its batches."""

    def __init__(self, rests: bool, seed: int = 0, longest: int = 40_000) -> None:
        super().__init__(steady=rests, seed=seed)
        self.longest, self.deaf, self.naps, self.skipped = longest, False, 0, 0
        self.first, self.second = Optimizer(), Optimizer()
        self.rests = self.ledger.steady.rests
        if rests:
            self.rests.allowed = True
            self.rests.sleepers.append(self)
            self.rests.hear_steps = self.on

    def off(self) -> bool:
        self.deaf, self.naps = True, self.naps + 1
        return True

    def on(self) -> None:
        self.deaf = False

    def spend(self, ns: int = 0) -> None:
        self.now += ns or self.random.randrange(1, self.longest)

    def forward(self, training: bool = True, grad: bool = True) -> None:
        if self.deaf:
            self.spend()
            self.spend()
        else:
            super().forward(training, grad)

    def backward(self) -> None:
        if self.deaf:
            self.spend()
        else:
            super().backward()

    def zero(self) -> None:
        if self.deaf:
            self.spend()
            self.spend()
        else:
            super().zero()

    def copy(self, pageable: bool = True, nbytes: int = 1000) -> None:
        if self.deaf and self.rests.has(LEAF):  # as the taps of copies and waits have it
            self.spend()
            self.spend()
        else:
            begin = self.now
            self.spend()
            self.ledger.copied(nbytes, pageable, self.now - begin)
            self.spend()

    def wait(self) -> None:
        if self.deaf and self.rests.has(LEAF):
            self.spend()
            self.spend()
        else:
            super().wait()

    def step(self, one: Optimizer | None = None) -> None:
        if self.deaf:
            self.spend()
            self.rests.steps.put(one or self.first)
            self.spend()
        else:
            self.optimizer(id(one or self.first))

    def evaluates(self) -> None:
        """`model.eval()`."""
        self.ledger.steady.wake()


def train(loop: Loop, pull: Pull, batches: int = 1) -> None:
    for _ in range(batches):
        loop.pull(pull)
        loop.forward()
        loop.backward()
    loop.step()
    loop.zero()


def parts(steps: Steps) -> dict[str, float]:
    found = {name: float(np.nansum(getattr(steps, f"{name}_s"))) for name in PHASES}
    return {**found, "other": float(steps.other_s.sum())}


def alike(quick: Loop, slow: Loop, but: tuple[str, ...] = ()) -> None:
    """The loop's steps one by one, and its parts within a tenth."""
    found, wanted = quick.close(), slow.close()
    assert quick.now == slow.now
    for name in ("start_s", "wall_s", "samples", "batches", "data_wait_s", "edge_s", "epoch", "kind", "count"):
        if name not in but:
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), err_msg=name)
    assert found.cpu_s.sum() == pytest.approx(wanted.cpu_s.sum(), rel=0.01)
    whole = wanted.wall_s.sum()
    of_wanted = parts(wanted)
    for name, seconds in parts(found).items():
        assert seconds == pytest.approx(of_wanted[name], rel=0.1, abs=0.005 * whole), name
    measured = sum(np.nan_to_num(getattr(found, f"{name}_s")) for name in PHASES)
    assert (found.wall_s - measured > -1e-12).all()
    assert (found.loss_s <= found.other_s + 1e-12).all()


def both(body: Callable[[Loop], None], seed: int = 0) -> tuple[Loop, Loop]:
    quick, slow = Loop(True, seed), Loop(False, seed)
    for loop in (quick, slow):
        body(loop)
    return quick, slow


@pytest.mark.parametrize("batches", [1, 2, 4])
def test_epochs_of_plain_and_of_accumulated_steps(batches: int) -> None:
    def body(loop: Loop) -> None:
        for _ in range(5):
            pull = loop.epoch()
            for _ in range(700 // batches):
                train(loop, pull, batches)
            loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.rests.rested > 0.6 * quick.ledger.step_count
    assert quick.naps > 2
    assert not quick.deaf
    alike(quick, slow)


def moved(loop: Loop, pull: Pull) -> None:
    """A batch that is copied in two pieces, and a loss that is read."""
    loop.pull(pull)
    loop.copy()
    loop.copy(pageable=False)
    loop.forward()
    loop.wait()
    loop.backward()
    loop.step()


@pytest.mark.parametrize("left", [False, True], ids=["to the end", "left in mid-step"])
def test_copies_and_waits_in_a_rest_are_those_of_the_steps_timed(left: bool) -> None:
    def body(loop: Loop) -> None:
        for _ in range(5):
            pull = loop.epoch()
            for _ in range(700):
                moved(loop, pull)
            if left:
                loop.pull(pull)
                loop.copy()
            loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.rests.rested > 0.6 * quick.ledger.step_count and not quick.deaf
    found, wanted = quick.table.steps(), slow.table.steps()
    for name in ("transfers", "transfer_bytes", "pageable", "syncs"):
        # Of a step that was left in a rest it is not known.
        allowed = 5 * (1000 if name == "transfer_bytes" else 1)
        assert getattr(found, name).sum() == pytest.approx(getattr(wanted, name).sum(), abs=allowed), name
    alike(quick, slow)


def test_a_copy_that_no_step_of_the_rhythm_has_ends_the_rest() -> None:
    loop = Loop(True)
    pull = loop.epoch()
    while not loop.ledger.pulse.resting:
        train(loop, pull)
    loop.copy()
    assert not loop.ledger.pulse.resting and not loop.deaf
    assert loop.ledger.now.transfers == 1


def test_the_first_steps_are_timed_in_full_and_so_are_all_of_a_loop_whose_steps_are_long() -> None:
    loop = Loop(True)
    pull = loop.epoch()
    for _ in range(FIRST_STEPS - 1):
        train(loop, pull)
        assert not loop.deaf
    for _ in range(2 * FULL):
        train(loop, pull)
    assert loop.deaf
    long = Loop(True, longest=SHORT_NS)
    pull = long.epoch()
    for _ in range(2 * FIRST_STEPS):
        train(long, pull)
    assert not long.naps
    assert not long.rests.said()


def test_a_rest_goes_on_over_the_edge_of_an_epoch() -> None:
    loop, heard = Loop(True), 0
    for epoch in range(40):
        pull = loop.epoch()
        for _ in range(100):
            train(loop, pull)
            heard += epoch >= 10 and not loop.deaf
        loop.exhaust(pull)
    assert heard < 3000 * (2 * FULL / REST + 0.05)


@pytest.mark.parametrize("seed", range(8))
def test_an_accumulation_that_changes_in_mid_epoch(seed: int) -> None:
    def body(loop: Loop) -> None:
        rnd = random.Random(seed)
        for _ in range(4):
            pull = loop.epoch()
            for _ in range(3):
                batches = rnd.choice((1, 2, 3, 4))
                for _ in range(rnd.randrange(100, 500)):
                    train(loop, pull, batches)
            loop.exhaust(pull)

    quick, slow = both(body, seed)
    assert quick.naps > 3
    alike(quick, slow)


@pytest.mark.parametrize("every", [7, 61, 400])
@pytest.mark.parametrize("learned", [True, False])
def test_a_step_that_is_skipped_now_and_then(every: int, learned: bool) -> None:
    """By `continue`, before anything is done with the batch, or by a GradScaler, after the backward."""

    def body(loop: Loop) -> None:
        for _ in range(3):
            pull = loop.epoch()
            for number in range(1500):
                if number % every == every - 1:
                    loop.pull(pull)
                    if learned:
                        loop.forward()
                        loop.backward()
                else:
                    train(loop, pull)
            loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.naps or every < FULL
    alike(quick, slow)


def test_an_evaluation_on_a_loader_is_none_of_the_steps() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for number in range(3000):
            train(loop, pull)
            if number % 300 == 299:
                held_out = loop.epoch()
                for _ in range(60):
                    loop.pull(held_out, grad=False)
                    loop.forward(False, False)
                loop.exhaust(held_out)
        loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.naps > 3
    alike(quick, slow)
    assert quick.table.steps().evaluation_s.sum() > 0.05 * quick.table.steps().wall_s.sum()


def test_an_evaluation_on_tensors_that_eval_announces() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for number in range(4000):
            train(loop, pull)
            if number % 300 == 299:
                loop.evaluates()
                for _ in range(20):
                    loop.forward(False, False)
        loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.naps > 3
    alike(quick, slow)


@pytest.mark.parametrize("every", [50, 800])
def test_an_evaluation_that_nobody_announces_ends_the_rests_or_is_billed_as_what_it_is(every: int) -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for number in range(40_000):
            train(loop, pull)
            if number % every == every - 1:
                for _ in range(every):
                    loop.forward(False, False)
        loop.exhaust(pull)

    quick, slow = both(body)
    found, wanted = quick.close(), slow.close()
    np.testing.assert_array_equal(found.wall_s, wanted.wall_s)
    by_hand, recorded = parts(wanted), parts(found)
    assert recorded["evaluation"] > 0.6 * by_hand["evaluation"]
    assert quick.rests.rested < 0.9 * quick.ledger.step_count


def test_an_occasional_slow_step_is_slow_where_it_was_slow_in_the_steps_timed() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for number in range(20_000):
            loop.pull(pull)
            loop.forward()
            if number % 23 == 3:  # in the backward
                before = loop.ledger.backward() if not loop.deaf else 0
                loop.spend(2_000_000)
                if not loop.deaf:
                    loop.ledger.switch(before)
            else:
                loop.backward()
            loop.step()
            loop.zero()
        loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.rests.rested > 0.5 * quick.ledger.step_count
    alike(quick, slow)


@pytest.mark.parametrize("after", ["batch", "step"])
def test_a_loop_that_is_left_in_the_middle_of_a_step(after: str) -> None:
    """By a break or an exception, and gone on with in another epoch."""

    def body(loop: Loop) -> None:
        for number in range(6):
            pull = loop.epoch()
            for _ in range(700 + number):
                train(loop, pull)
            loop.pull(pull)
            if after == "step":
                loop.forward()
                loop.backward()
                loop.step()

    quick, slow = both(body)
    found, wanted = quick.close(), slow.close()
    assert quick.naps > 3
    np.testing.assert_array_equal(found.samples, wanted.samples)
    np.testing.assert_array_equal(found.batches, wanted.batches)
    # When the last step of all ended is known by the usual length of one alone. Not known at all, it would last for
    # nothing or for two: half of a usual one lies between.
    np.testing.assert_array_equal(found.wall_s[:-1], wanted.wall_s[:-1])
    assert found.wall_s[-1] == pytest.approx(wanted.wall_s[-1], abs=0.5 * float(np.median(wanted.wall_s)))


def test_a_second_optimizer_and_one_that_steps_twice() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for _ in range(1000):
            train(loop, pull)
        for number in range(1000):
            loop.pull(pull)
            loop.forward()
            loop.backward()
            loop.step()
            if number % 100 == 50:
                loop.step()
        for _ in range(1000):
            loop.pull(pull)
            loop.forward()
            loop.backward()
            loop.step()
            loop.step(loop.second)
        loop.exhaust(pull)

    quick, slow = both(body)
    assert quick.naps > 1
    found, wanted = quick.close(), slow.close()
    np.testing.assert_array_equal(found.samples, wanted.samples)
    np.testing.assert_array_equal(found.batches, wanted.batches)
    assert found.wall_s.sum() == pytest.approx(wanted.wall_s.sum())


def test_accumulated_batches_and_a_second_optimizer_that_steps_after_each() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for _ in range(800):
            train(loop, pull, 2)
        for number in range(800):
            loop.pull(pull)
            loop.forward()
            loop.backward()
            loop.step(loop.second)
            if number % 2:
                loop.step()
        loop.exhaust(pull)

    quick, slow = both(body)
    found, wanted = quick.close(), slow.close()
    np.testing.assert_array_equal(found.samples, wanted.samples)
    np.testing.assert_array_equal(found.wall_s, wanted.wall_s)


def test_two_loops_one_after_the_other_and_one_that_pulls_from_nothing() -> None:
    def body(loop: Loop) -> None:
        pull = loop.epoch()
        for _ in range(1000):
            train(loop, pull)
        for number in range(300):  # the first one was left by a break
            loop.forward()
            loop.backward()
            loop.step()
            if number % 50 == 49:
                loop.rests.mind()  # as a look at the stack does
        other = loop.epoch()
        for _ in range(1000):
            train(loop, other, 2)
        loop.exhaust(other)

    quick, slow = both(body)
    found, wanted = quick.close(), slow.close()
    assert len(found) == len(wanted)
    np.testing.assert_array_equal(found.batches, wanted.batches)
    # Of the steps until somebody looked the samples are not known: nothing was pulled for them.
    unknown = np.isnan(found.samples)
    assert unknown.sum() <= 50
    np.testing.assert_array_equal(found.samples[~unknown], wanted.samples[~unknown])
    assert found.wall_s.sum() == pytest.approx(wanted.wall_s.sum())


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_loop_does_its_steps_and_samples_are_those_of_the_ledger_alone(seed: int) -> None:
    def body(loop: Loop) -> None:
        rnd = random.Random(seed)
        batches = rnd.choice((1, 1, 2, 4))
        for _ in range(rnd.randrange(2, 6)):
            pull = loop.epoch()
            for _ in range(rnd.randrange(1, 8)):
                for _ in range(rnd.randrange(600)):
                    train(loop, pull, batches)
                match rnd.randrange(9):
                    case 0:
                        loop.pull(pull)
                    case 1:
                        loop.forward(False, False)
                    case 2:
                        loop.evaluates()
                        loop.forward(False, False)
                    case 3:
                        loop.step()
                    case 4:
                        loop.step(loop.second)
                    case 5:
                        batches = rnd.choice((1, 2, 3))
                    case 6:
                        loop.ledger.carve(SYNC, 0)
                    case 7:
                        other = loop.epoch()
                        loop.pull(other, grad=False)
                        loop.forward(False, False)
                        loop.exhaust(other)
            if rnd.random() < 0.2:
                loop.pull(pull)
                continue
            loop.exhaust(pull)

    quick, slow = both(body, seed)
    found, wanted = quick.close(), slow.close()
    assert len(found) == len(wanted)
    np.testing.assert_array_equal(found.samples, wanted.samples)
    np.testing.assert_array_equal(found.batches, wanted.batches)
    np.testing.assert_array_equal(found.epoch, wanted.epoch)
    np.testing.assert_array_equal(found.syncs, wanted.syncs)
    assert found.wall_s.sum() == pytest.approx(wanted.wall_s.sum(), rel=0.001)
    assert found.data_wait_s.sum() == pytest.approx(wanted.data_wait_s.sum(), rel=0.001)


def test_the_note_says_how_many_steps_were_timed() -> None:
    loop = Loop(True)
    pull = loop.epoch()
    for _ in range(4000):
        train(loop, pull)
    loop.exhaust(pull)
    loop.close()
    said = loop.rests.said()
    took, part = formatting.seconds(loop.table.steps().wall_s.mean()), formatting.share(1 - loop.rests.rested / 4000)
    assert said.startswith(f"Steps of {took}: {part} of them were timed")

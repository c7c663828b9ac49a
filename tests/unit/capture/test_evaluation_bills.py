"""Time of evaluations, and of the steps around them, on a virtual clock."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.capture.events import BY_HAND, COSTLY, NEXT, OPENED, OPENING, RESTART
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.recording.steps import INFERENCE, TRAINING
from tests.support.clock_bench import MS, Bench, sums
from tests.support.iterators import iterator, only_evaluated


def test_costly_calls_of_a_long_evaluation_are_all_recorded() -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    for _ in range(5):
        bench.pull(held_out, grad=False)
        bench.forward(7, training=False, grad=False)
        bench.note(COSTLY, ("save", "cell line 9", MS, 100))
    bench.exhaust(held_out)
    bench.pull(pull)
    bench.train()
    bench.clock.fold([(NEXT, bench.now, pull)])
    (step,) = bench.clock.found()[0]
    calls = np.sum([of_span["save", "cell line 9"] for of_span in step.calls], axis=0)
    assert calls.tolist() == [5, 5 * MS, 0, 500]


def test_a_batch_that_is_learned_from_after_all_counts_once_whatever_is_evaluated_beside_it() -> None:
    bench, first, second = Bench(), iterator(), iterator()
    bench.pull(first)
    bench.train()
    only_evaluated(bench.clock.sources, second)
    bench.pull(second)
    bench.forward()
    bench.backward()
    bench.forward(7, training=False, grad=False)  # a look at a tensor at hand, in the middle of the step
    bench.train()
    steps = bench.close()
    assert steps.samples.tolist() == [8, 8]
    assert steps.forward_s.tolist() == pytest.approx([0.002, 0.002])
    assert steps.backward_s.tolist() == pytest.approx([0.003, 0.006])


def test_an_iterator_that_was_made_for_an_evaluation_is_its_own_though_only_its_batches_tell() -> None:
    """In training mode, with gradients: that nothing is learned from them shows when the next is requested."""
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    bench.exhaust(pull)
    bench.note(OPENING, (False, None))
    bench.now += 50 * MS
    bench.note(OPENED)
    for _ in range(2):
        bench.pull(held_out)
        bench.forward()
    bench.exhaust(held_out)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert steps.evaluation_s[-1] > 0.05 and steps.data_wait_s.max() < 0.01 and steps.edge_s.max() < 0.01


@pytest.mark.parametrize("known", [True, False])
def test_both_batches_that_an_evaluation_fetches_ahead_are_its_own(known: bool) -> None:
    """As Accelerate does, whose training loader is not exhausted."""
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    bench.note(OPENING, (known, None))
    bench.note(OPENED)
    bench.pull(held_out)
    bench.pull(held_out)
    bench.forward(7, training=False, grad=False)
    bench.forward(7, training=False, grad=False)
    bench.exhaust(held_out)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    waits_and_forwards_s = 0.002 + 0.014
    assert steps.evaluation_s.sum() >= waits_and_forwards_s, steps.evaluation_s
    assert steps.samples.tolist() == [8, 8]


def test_a_model_that_a_loop_trains_by_hand_in_evaluation_mode_is_not_evaluated() -> None:
    """`model.eval()` to leave its statistics alone, then `loss.backward()` and `p -= lr * p.grad`: no optimizer."""
    bench = Bench()
    bench.note(BY_HAND, True)
    for _ in range(4):
        bench.forward(2, training=False)
        bench.backward(3)
        bench.spend(1)
    steps = bench.close()
    assert len(steps) == 4
    assert sums(steps)["forward"] == 8 and "evaluation" not in sums(steps)


def learns(bench: Bench, source: Pulled) -> None:
    """A batch of a loop without an optimizer that is recorded."""
    bench.pull(source)
    bench.forward()
    bench.backward()


def predicts(bench: Bench, source: Pulled) -> None:
    """A batch of a loop that forgot `no_grad`."""
    bench.pull(source)
    bench.forward(7, training=False)


def test_a_pass_over_held_out_data_is_an_evaluation_without_a_recorded_optimizer_too() -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    for _ in range(70):
        learns(bench, pull)
    for _ in range(3):
        predicts(bench, held_out)
    learns(bench, pull)
    steps = bench.close()
    assert set(steps.kind.tolist()) == {TRAINING}
    assert sums(steps)["evaluation"] == pytest.approx(3 * 8)


def test_gradients_of_some_batches_and_predictions_of_others_are_all_steps_without_a_recorded_optimizer() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(35):
        learns(bench, pull)
        predicts(bench, pull)
    steps = bench.close()
    assert "evaluation" not in sums(steps) and steps.kind.tolist() == [TRAINING, INFERENCE] * 35


def test_what_the_edges_of_evaluations_take_is_the_sum_of_all_passes() -> None:
    bench, pull = Bench(), iterator()
    for first_wait in (5, 3):
        bench.pull(pull)
        bench.train()
        held_out = iterator()
        for wait in (first_wait, 1):
            bench.pull(held_out, wait, grad=False)
            bench.forward(7, training=False, grad=False)
    bench.pull(pull)
    bench.train()
    assert bench.clock.evaluation_edge_ns == (5 + 3) * MS


def test_an_evaluation_after_steps_by_hand_begins_with_its_first_forward() -> None:
    bench, held_out = Bench(), iterator()
    bench.note(BY_HAND, True)
    for number in range(4):
        bench.forward()
        bench.backward()
        if number == 1:
            for _ in range(3):
                bench.pull(held_out)
                bench.forward(7, training=False)
            bench.exhaust(held_out)
    assert sums(bench.close())["evaluation"] >= 3 * 7


def test_a_second_optimizer_may_step_twice_on_a_batch_after_an_evaluation_within_the_first_accumulation() -> None:
    bench, before, pull, held_out = Bench(), iterator(), iterator(), iterator()
    for _ in range(70):
        learns(bench, before)
    bench.note(RESTART)
    learns(bench, pull)
    bench.pull(held_out, grad=False)
    bench.forward(7, training=False, grad=False)
    seen = len(bench.ends)
    for key in (1, 2, 2):
        bench.optimizer(key=key)
    bench.pull(pull)
    assert len(bench.ends) == seen + 1


def test_a_loop_that_begins_anew_keeps_the_step_that_was_whole() -> None:
    bench, source = Bench(), iterator()
    for _ in range(6):
        bench.pull(source)
        bench.train()
        if len(bench.ends) == 2:
            bench.note(RESTART)
    assert bench.close().count.sum() == 6

"""The step clock on a virtual clock: to the nanosecond, what a step is and what its time is billed to."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_doctor.capture.events import (
    BATCH,
    CALLED,
    CPU,
    DONE,
    MARK,
    NEXT,
    OPENED,
    OPENING,
    OURS,
    PAUSED,
    PHASE,
    STEP,
    STEPPED,
)
from gpu_doctor.capture.found import StackSample
from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.open_step import MOST_SPANS
from gpu_doctor.capture.sources import MOST_SOURCES
from gpu_doctor.recording.steps import INFERENCE, OTHER, TRAINING
from tests.support.clock_bench import MS, Bench, sums
from tests.support.iterators import iterator, only_evaluated


def test_a_plain_epoch_is_accounted_to_the_nanosecond() -> None:
    bench, pull = Bench(), iterator()
    bench.spend(100)  # before the loop: no part of a step
    for _ in range(3):
        bench.pull(pull)
        bench.train()
    bench.exhaust(pull)
    bench.spend(50)  # after it: no part either
    steps = bench.close()
    assert steps.kind.tolist() == [TRAINING] * 3
    np.testing.assert_allclose(steps.wall_s, 0.01075)
    np.testing.assert_allclose(steps.start_s, 0.1 + 0.01075 * np.arange(3))
    assert steps.samples.tolist() == [8, 8, 8]
    assert sums(steps) == {"data_wait": 3, "forward": 6, "backward": 9, "optimizer": 12, "other": 2.25}
    np.testing.assert_allclose(steps.loss_s, 0.0005)
    np.testing.assert_allclose(steps.edge_s, [0.001, 0, 0])
    np.testing.assert_allclose(steps.cpu_s, steps.wall_s / 2)
    assert bench.ends == [110.75 * MS, 121.5 * MS, 132.25 * MS]


def test_predictions_from_one_batch_of_each_loader_are_a_step_each() -> None:
    bench = Bench()
    for _ in range(3):
        bench.pull(iterator())  # `next(iter(loader))`: nothing requests from it again
        bench.forward(training=False)
    steps = bench.close()
    assert (steps.kind.tolist(), steps.batches.tolist()) == ([INFERENCE] * 3, [1, 1, 1])


def test_a_training_batch_that_is_only_predicted_leaves_the_epoch_as_it_is() -> None:
    bench, loader = Bench(), "rows"
    for _ in range(2):
        pull = iterator(loader)
        bench.pull(pull)
        bench.train()
        bench.pull(pull)
        bench.forward(training=False)
        bench.pull(pull)
        bench.train()
        bench.exhaust(pull)
    assert bench.close().epoch.tolist() == [0, 0, 1, 1]


def test_a_forward_that_records_no_gradients_has_time_of_its_own() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(3):
        bench.pull(pull)
        bench.train()
        bench.forward(5, grad=False)
    bench.exhaust(pull)
    steps = bench.close()
    assert sums(steps)["forward"] == 3 * (2 + 5)
    np.testing.assert_allclose(steps.no_grad_s, 0.005)
    evaluated = Bench()
    for _ in range(3):
        evaluated.pull(pull)
        evaluated.train()
        evaluated.forward(5, training=False, grad=False)
    steps = evaluated.close()
    assert steps.no_grad_s.sum() == 0.0 and sums(steps)["evaluation"] >= 10, "in evaluation mode it is an evaluation"


def test_without_a_device_sync_is_not_measured_and_with_one_it_is_carved_out() -> None:
    bench, pull = Bench(sync_measured=True), iterator()
    bench.pull(pull)
    bench.forward()
    bench.spend(1)
    bench.wait(2)
    bench.backward()
    bench.optimizer()
    bench.wait(1)  # after the optimizer: the step's still
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert steps.sync_s.tolist() == [0.003, 0.0]
    assert steps.syncs.tolist() == [2.0, 0.0]
    assert sums(steps)["other"] == 1.5
    plain = Bench()
    plain.pull(iterator())
    plain.train()
    unmeasured = plain.close()
    assert np.isnan(unmeasured.sync_s).all()
    assert np.isnan(unmeasured.syncs).all()


def test_a_wait_in_an_evaluation_is_not_counted_as_a_steps() -> None:
    bench, pull, held_out = Bench(sync_measured=True), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    bench.pull(held_out, grad=False)
    bench.forward(training=False, grad=False)
    bench.wait(1)
    bench.exhaust(held_out)
    bench.pull(pull)
    bench.train()
    assert bench.close().syncs.tolist() == [0.0, 0.0]


def test_where_nothing_is_pulled_a_step_ends_at_its_optimizer() -> None:
    bench = Bench()
    for _ in range(3):
        bench.spend(1)
        bench.train()
    steps = bench.close()
    np.testing.assert_allclose(steps.wall_s, [0.0095, 0.01075, 0.01075])  # the loop begins at its first forward
    assert steps.samples.tolist() == [8, 8, 8]
    assert steps.batches.tolist() == [0, 0, 0]


def test_two_optimizers_are_one_step_with_and_without_a_loader() -> None:
    for pulled in (True, False):
        bench, pull = Bench(), iterator()
        for _ in range(3):
            if pulled:
                bench.pull(pull)
            bench.train(key=1)
            bench.train(key=2)
        assert len(bench.close()) == 3, f"pulled={pulled}"


def test_several_optimizer_steps_on_one_batch_are_several_steps() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(2):
        bench.pull(pull)
        for _ in range(3):
            bench.train(key=1)
        bench.train(key=2)
    steps = bench.close()
    assert len(steps) == 6  # the second optimizer belongs to the last of each three
    assert steps.batches.tolist() == [1, 0, 0, 1, 0, 0]


@pytest.mark.parametrize(("training", "grad"), [(False, False), (False, True), (True, True)])
def test_an_evaluation_is_known_by_no_grad_or_by_what_follows(training: bool, grad: bool) -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    for _ in range(3):
        bench.pull(held_out, wait=5, grad=grad)
        bench.forward(7, training=training, grad=grad)
    bench.exhaust(held_out, wait=1)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert steps.samples.tolist() == [8, 8]
    assert sums(steps)["evaluation"] == 37 and sums(steps)["data_wait"] == 2
    np.testing.assert_allclose(steps.edge_s.sum(), 0.001)
    assert bench.source(held_out).evaluation and not bench.source(pull).evaluation


@pytest.mark.parametrize("pulled", [True, False])
def test_an_evaluation_at_the_end_belongs_to_the_last_row_and_adds_no_cpu_time(pulled: bool) -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    for _ in range(2):
        if pulled:
            bench.pull(pull)
        bench.train()
    if pulled:
        bench.exhaust(pull)
        bench.pull(held_out, wait=5, grad=False)
    bench.forward(7, training=False, grad=False)
    if pulled:
        bench.exhaust(held_out)
    bench.spend(1000)
    steps = bench.close()
    np.testing.assert_allclose(steps.evaluation_s, [0, 0.012 if pulled else 0.007])
    if pulled:
        np.testing.assert_allclose(steps.wall_s, [0.01075, 0.02275])
        np.testing.assert_allclose(steps.cpu_s, [0.01075 / 2] * 2)


def test_a_loader_taken_for_an_evaluation_is_trained_from_after_all() -> None:
    bench, first, second = Bench(), iterator(), iterator()
    bench.pull(first)
    bench.train()
    only_evaluated(bench.clock.sources, second)
    for _ in range(2):
        bench.pull(second)
        bench.train()
    steps = bench.close()
    assert steps.samples.tolist() == [8, 8, 8]
    assert not bench.source(second).evaluation
    assert bench.source(second).learned


def test_without_an_optimizer_every_batch_is_a_step_while_the_loop_runs() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(3):
        bench.pull(pull)
        bench.forward(training=False, grad=False)
        bench.spend(1)
    assert bench.table.rows == 2
    bench.exhaust(pull)
    steps = bench.close()
    assert steps.kind.tolist() == [INFERENCE] * 3
    np.testing.assert_allclose(steps.wall_s, 0.004)
    assert steps.samples.tolist() == [8, 8, 8]


def test_batches_without_any_call_are_rows_after_three_seconds_at_the_latest() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(5):
        bench.pull(pull)
        bench.spend(1000)
    assert bench.table.rows == 4
    bench.pull(pull)
    assert bench.table.rows == 5
    for _ in range(80):
        bench.pull(pull)
    assert bench.table.rows == 85


def test_a_pass_over_the_data_before_the_training_is_none_of_its_first_step() -> None:
    bench, statistics, pull = Bench(), iterator(), iterator()
    for _ in range(3):
        bench.pull(statistics)
        bench.spend(1)
    bench.exhaust(statistics)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert steps.kind.tolist() == [INFERENCE] * 3 + [TRAINING]
    assert steps.samples.tolist() == [8] * 4


def test_a_batch_fetched_ahead_is_counted_once() -> None:
    bench, pull = Bench(), iterator()
    bench.pull(pull)
    for _ in range(3):
        bench.pull(pull)
        bench.train()
    bench.exhaust(pull)
    bench.train()
    steps = bench.close()
    assert len(steps) == 4
    assert steps.samples.tolist() == [16, 8, 8, 0]


def test_an_evaluation_that_fetches_ahead_is_no_part_of_a_step() -> None:
    """Accelerate hands out a batch when it has the next one: no forward lies between its first two requests."""
    bench, loader = Bench(), "rows"
    for _ in range(2):
        pull, held_out = iterator(loader), iterator()
        for _ in range(2):
            bench.pull(pull)
            bench.train()
        bench.exhaust(pull)
        bench.pull(held_out, wait=5)
        for _ in range(6):
            bench.pull(held_out, wait=5)
            bench.forward(7, training=False, grad=False)
        bench.exhaust(held_out)
        bench.forward(7, training=False, grad=False)
    bench.pull(iterator(loader))
    bench.train()
    steps = bench.close()
    assert steps.samples.tolist() == [8] * 5
    assert steps.batches.tolist() == [1] * 5
    assert steps.epoch.tolist() == [0, 0, 1, 1, 2]
    assert sums(steps)["evaluation"] == 2 * 7 * 12
    assert sums(steps)["data_wait"] == 5
    np.testing.assert_allclose(steps.edge_s.sum(), 0.003)


def test_samples_of_several_loaders_are_those_of_the_one_that_gives_most() -> None:
    bench, outer = Bench(), iterator()
    inner_loader = "inner"
    for _ in range(3):
        bench.pull(outer, samples=100)
        inner = iterator(inner_loader)
        for _ in range(2):
            bench.pull(inner, samples=8)
            bench.train()
        bench.exhaust(inner)
    steps = bench.close()
    assert len(steps) == 6
    # In the very first step both have given one batch, and the first requested counts.
    assert steps.samples.tolist() == [100, 8, 8, 8, 8, 8]


def test_a_batch_that_is_pulled_to_see_that_the_epoch_is_over_is_no_part_of_a_step() -> None:
    bench, loader = Bench(), "rows"
    for _ in range(3):
        pull = iterator(loader)
        for _ in range(2):
            bench.pull(pull)
            bench.train()
        bench.pull(pull)  # `if step == 2: break` stands before the training
    steps = bench.close()
    assert steps.epoch.tolist() == [0, 0, 1, 1, 2, 2]
    assert steps.samples.tolist() == [8] * 6 and steps.batches.tolist() == [1] * 6
    assert np.count_nonzero(steps.edge_s) == 3


@pytest.mark.parametrize("anew", [False, True])
def test_two_iterators_over_one_loader_are_no_two_passes(anew: bool) -> None:
    bench, loader = Bench(), "rows"
    for _ in range(2):
        both = iterator(loader), iterator(loader)  # zip(loader, loader)
        for _ in range(3):
            both = (iterator(loader), iterator(loader)) if anew else both  # next(iter(loader)), twice a step
            for pull in both:
                bench.pull(pull)
            bench.train()
        if not anew:
            bench.exhaust(both[0])
    steps = bench.close()
    assert steps.batches.tolist() == [2] * 6 and steps.samples.tolist() == [8] * 6
    if not anew:
        assert steps.epoch.tolist() == [0, 0, 0, 1, 1, 1]


def test_a_step_that_reaches_over_an_epochs_end_has_the_samples_of_both() -> None:
    bench, loader = Bench(), "rows"
    for _ in range(3):
        pull = iterator(loader)
        for _ in range(3):
            bench.pull(pull)
            bench.forward()
            bench.backward()
            if bench.source(pull).loader.delivered % 2 == 0:
                bench.optimizer()
        bench.exhaust(pull)
    steps = bench.close()
    assert steps.samples.tolist() == [16] * 4 and steps.batches.tolist() == [2] * 4
    assert steps.epoch.tolist() == [0, 1, 1, 2]


def test_an_unreadable_batch_has_no_sample_count_and_says_so() -> None:
    bench, pull = Bench(), iterator()
    bench.pull(pull, samples=float("nan"))
    bench.train()
    assert np.isnan(bench.close().samples).all()


def test_calls_of_a_closure_are_counted_and_no_evaluations() -> None:
    bench, pull = Bench(), iterator()
    for calls in (3, 1):
        bench.pull(pull)
        bench.note(STEP, 1)
        for _ in range(calls):
            bench.note(PHASE, OTHER)
            bench.forward(2)
            bench.backward(3)
            bench.note(DONE)
        bench.spend(1)
        bench.note(STEPPED, 1)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert steps.closures.tolist() == [3.0, 1.0, 0.0]
    assert steps.evaluation_s.sum() == 0.0
    assert steps.forward_s[0] == pytest.approx(6e-3) and steps.backward_s[0] == pytest.approx(9e-3)
    assert steps.optimizer_s[:2] == pytest.approx([1e-3, 1e-3])


def test_a_closure_that_goes_over_the_data_is_one_step_from_the_first_on() -> None:
    bench = Bench()
    for _step in range(2):
        bench.note(STEP, 1)
        for _call in range(3):
            bench.note(PHASE, OTHER)
            pull = iterator()
            for _ in range(4):
                bench.pull(pull)
                bench.forward(2)
                bench.backward(3)
            bench.exhaust(pull)
            bench.note(DONE)
        bench.spend(1)
        bench.note(STEPPED, 1)
    steps = bench.close()
    assert steps.closures.tolist() == [3.0, 3.0] and steps.batches.tolist() == [12.0, 12.0]
    assert steps.kind.tolist() == [TRAINING, TRAINING]
    assert steps.forward_s == pytest.approx([24e-3, 24e-3]) and steps.data_wait_s == pytest.approx([12e-3, 12e-3])


def test_a_run_without_any_loop_is_empty() -> None:
    bench = Bench()
    bench.spend(5)
    assert len(bench.close()) == 0


def test_a_pass_over_held_out_data_before_the_training_is_an_evaluation_without_any_forward() -> None:
    bench, held_out, training = Bench(), iterator(), iterator()
    for _ in range(2):
        bench.pull(held_out, grad=False)
        bench.spend(5)
    for _ in range(2):
        for _ in range(2):
            bench.pull(training)
            bench.forward()
            bench.backward()
        bench.optimizer()
    steps = bench.close()
    assert steps.samples.tolist() == [16, 16]
    assert steps.batches.tolist() == [2, 2]
    assert steps.evaluation_s[0] == pytest.approx(0.012)
    assert steps.data_wait_s.tolist() == pytest.approx([0.002, 0.002])


def test_workers_that_start_after_an_evaluation_are_waited_for_though_its_loader_was_not_exhausted() -> None:
    bench, held_out, training = Bench(), iterator(), iterator()
    bench.pull(training)
    bench.train()
    bench.pull(held_out, grad=False)
    bench.forward(training=False, grad=False)
    bench.spend(7)
    bench.note(OPENING, (False, None))
    bench.spend(20)
    bench.note(OPENED)
    bench.pull(iterator())
    bench.train()
    steps = bench.close()
    assert steps.evaluation_s.sum() == pytest.approx(0.010)
    assert steps.data_wait_s.sum() == pytest.approx(0.022)
    assert steps.samples.tolist() == [8, 8]


def test_batches_fetched_without_gradients_by_the_loop_that_trains_are_no_evaluation() -> None:
    bench, training = Bench(), iterator()
    for _ in range(2):
        for _ in range(2):
            bench.pull(training, grad=False)
            bench.backward()
        bench.optimizer()
    steps = bench.close()
    assert steps.samples.tolist() == [16, 16]
    assert steps.evaluation_s.sum() == 0


@pytest.mark.parametrize("pulled", [True, False])
def test_an_evaluation_that_records_gradients_for_nothing_is_one(pulled: bool) -> None:
    bench, pull = Bench(), iterator()
    for _ in range(4):
        if pulled:
            bench.pull(pull)
        bench.train()
        for _ in range(3):
            bench.forward(5, training=False)
            bench.spend(1)
    steps = bench.close()
    assert steps.kind.tolist() == [TRAINING] * 4
    assert sums(steps)["evaluation"] == 4 * 18 - 1 if pulled else True
    np.testing.assert_allclose(np.nansum(steps.evaluation_s), 0.072, atol=0.0011)
    np.testing.assert_allclose(np.nansum(steps.forward_s), 0.008)


@pytest.mark.parametrize("pulled", [True, False])
def test_a_model_that_is_trained_in_evaluation_mode_is_trained(pulled: bool) -> None:
    bench, pull = Bench(), iterator()
    for _ in range(4):
        if pulled:
            bench.pull(pull)
        bench.forward(training=False)
        bench.backward()
        bench.optimizer()
    assert "evaluation" not in sums(bench.close())


def test_two_loaders_in_a_zip_are_both_trained_from_and_one_that_was_read_before_is_not() -> None:
    bench, held_out, first, second = Bench(), iterator(), iterator(), iterator()
    for _ in range(2):
        bench.pull(held_out)
    for _ in range(4):
        bench.pull(first)
        bench.pull(second)
        bench.train()
    bench.close()
    assert [bench.source(source).learned for source in (held_out, first, second)] == [False, True, True]


def test_a_long_evaluation_takes_a_few_spans_and_all_of_its_time_is_recorded() -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    for _ in range(500):
        bench.pull(held_out, wait=5, grad=False)
        bench.forward(7, training=False, grad=False)
    assert len(bench.clock.open.spans) < 10
    bench.exhaust(held_out)
    bench.pull(pull)
    bench.train()
    steps = bench.close()
    assert sums(steps)["evaluation"] == 500 * 12
    assert steps.samples.tolist() == [8, 8]


def test_of_the_marks_in_an_evaluation_all_but_the_newest_are_given_back() -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    for number in range(50):
        bench.pull(held_out, grad=False)
        bench.forward(7, training=False, grad=False)
        bench.note(MARK, (CALLED, Put(number, 0), 0))
    assert bench.clock.device.spent == list(range(49))


def test_a_dataset_that_reads_a_loader_of_its_own_to_its_end_may_be_trained_from() -> None:
    bench, pull, inner = Bench(), iterator(), iterator()
    for _ in range(3):
        bench.note(NEXT, pull)
        bench.exhaust(inner, wait=1)
        bench.note(BATCH, 8)
        bench.train()
    steps = bench.close()
    assert (len(steps), sums(steps)["data_wait"]) == (3, 3)


def test_what_a_wait_between_two_steps_takes_is_no_time_of_theirs() -> None:
    bench, pull = Bench(), iterator()
    for _ in range(3):
        bench.pull(pull)
        bench.train()
        bench.note(CPU, bench.now // 2)
        bench.note(NEXT, pull)
        bench.spend(40)
        bench.note(PAUSED, (bench.now - 40 * MS, 20 * MS))
        bench.note(BATCH, 8)
        bench.train()
    bench.exhaust(pull)
    steps = bench.close()
    np.testing.assert_allclose(steps.wall_s, [0.01075, 0.00975] * 3)
    np.testing.assert_allclose(steps.cpu_s, steps.wall_s / 2)


@pytest.mark.parametrize("marked", [False, True])
def test_a_step_that_does_not_end_takes_bounded_spans_and_all_of_its_time_is_recorded(marked: bool) -> None:
    bench, pull, held_out = Bench(), iterator(), iterator()
    bench.pull(pull)
    bench.train()
    for number in range(5 * MOST_SPANS):  # losses of single batches are summed, and one step is made of all
        bench.pull(pull, wait=1)
        if marked:
            bench.note(MARK, (CALLED, Put(number, 0), 0))
        bench.forward(2)
        if number % 1000 == 999:
            bench.pull(held_out, wait=5, grad=False)
            bench.forward(7, training=False, grad=False)
            bench.exhaust(held_out)
    assert len(bench.clock.open.spans) <= MOST_SPANS + 2
    bench.train()
    bench.pull(pull)
    if marked:
        assert len(bench.clock.device.spent) == 5 * MOST_SPANS
    steps = bench.close()
    spent = sums(steps)
    assert spent["data_wait"] == 1 + 5 * MOST_SPANS and spent["evaluation"] == 10 * 12
    assert spent["forward"] == 2 * (5 * MOST_SPANS + 2)
    assert steps.samples[1] == 8 * 5 * MOST_SPANS and steps.batches[1] == 5 * MOST_SPANS


def test_our_own_time_is_in_no_phase() -> None:
    bench = Bench(event_ns=MS // 10)
    loader = iterator()
    for _ in range(3):
        bench.pull(loader)
        bench.train()
        begin = bench.now
        bench.spend(2)
        bench.note(OURS, begin)
        bench.spend(0.05)
    bench.exhaust(loader)
    steps = bench.close()
    assert float(steps.wall_s.sum()) == pytest.approx(3 * 12.8e-3)
    found = sums(steps)
    assert sum(found.values()) == pytest.approx(3 * 12.8)
    assert found["ours"] == pytest.approx(3 * (2 + 5 * 0.1 + 0.05)), "an event takes no more than there is"
    assert (found["forward"], found["backward"]) == (pytest.approx(3 * 1.9), pytest.approx(3 * 2.9))


def test_a_sample_of_our_own_code_is_no_sample_of_the_loop() -> None:
    bench, loader = Bench(), iterator()
    bench.pull(loader)
    bench.spend(5)
    stack_samples = [
        StackSample(bench.now - 4 * MS, bench.now - 4 * MS, "loop"),
        StackSample(bench.now - MS, bench.now - MS, "ours"),
    ]
    bench.clock.fold([(OURS, bench.now, bench.now - 2 * MS)], stack_samples)
    assert [(sample.seen, sample.phase) for sample in bench.clock.found().stack_samples] == [
        ("loop", OTHER),
        ("ours", -1),
    ]


def test_our_own_time_in_an_evaluation_is_no_evaluation() -> None:
    bench, training, held_out = Bench(event_ns=MS // 10), iterator(), iterator()
    for _ in range(2):
        bench.pull(training)
        bench.train()
        bench.pull(held_out, grad=False)
        begin = bench.now
        bench.spend(1)
        bench.note(OURS, begin)
        bench.forward(training=False, grad=False)
        bench.exhaust(held_out)
    found = sums(bench.close())
    assert found["ours"] > 2 * 1.0
    assert found["evaluation"] == pytest.approx(2 * (1 + 2 - 2 * 0.1), abs=1e-6)


def test_a_wait_between_two_steps_leaves_no_time_of_ours_behind() -> None:
    bench, loader = Bench(event_ns=MS // 10), iterator()
    for _ in range(2):
        bench.pull(loader)
        bench.train()
    bench.note(NEXT, loader)
    before = bench.now
    bench.spend(50)
    bench.note(PAUSED, (before, 0))
    bench.note(BATCH, 8)
    bench.train()
    steps = bench.close()
    assert sum(sums(steps).values()) == pytest.approx(1e3 * float(steps.wall_s.sum()))
    assert float(steps.wall_s[-1]) < 0.02 and (steps.ours_s >= 0).all()


def test_many_iterators_take_bounded_memory_and_one_that_is_requested_again_is_known() -> None:
    bench, pull = Bench(), iterator("rows")
    for number in range(3 * MOST_SOURCES):
        bench.pull(pull)
        bench.train()
        bench.pull(iterator(f"held out {number % 2}"), grad=False)
        bench.forward(training=False, grad=False)
    steps = bench.close()
    assert set(steps.epoch.tolist()) == {0} and steps.batches.sum() == 3 * MOST_SOURCES
    assert bench.source(pull).delivered == 3 * MOST_SOURCES
    assert len(bench.clock.sources) <= MOST_SOURCES


def test_the_role_of_a_loader_is_found_once_and_training_outweighs_an_evaluation() -> None:
    bench, held_out = Bench(), iterator("held out")
    for _ in range(3):
        bench.pull(iterator("rows"))
        bench.train()
    bench.pull(held_out, grad=False)
    bench.exhaust(iterator("rows"))
    assert bench.clock.found().roles == [("rows", "training"), ("held out", "evaluation")]
    bench.pull(held_out)
    bench.train()
    bench.close()
    assert bench.clock.found().roles == [("held out", "training")]
    assert bench.clock.sources.passes("held out") == 0


@pytest.mark.parametrize("optimizers", [1, 2])
def test_a_loop_over_models_has_the_steps_of_each(optimizers: int) -> None:
    bench = Bench()
    for model in range(3):
        for _ in range(4):
            for optimizer in range(optimizers):
                bench.train(key=10 * model + optimizer)
    steps = bench.close()
    assert len(steps) == 12 and steps.samples.tolist() == [8.0] * 12

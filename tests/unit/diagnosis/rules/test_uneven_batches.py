"""uneven-batches: few slow batches outlast the stock of prefetched ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.found import asked, rule, sick, surely, top
from tests.support.recordings import Loop, with_more

RULE = "uneven-batches"
WALLS = [3.0] * 58 + [200.0] * 2
UNEVEN = Loop(wait=4.0, workers=2, fetch_cpu=1.0, fetch_walls=WALLS, consumer_cpu=10.0)


def test_sick() -> None:
    found = sick(RULE, UNEVEN)
    assert found.cost_share == pytest.approx(4 / 14, rel=0.02)
    # 200 ms and half as much again, at 2 workers and 10 ms a step: some 15 ahead in each
    assert found.prescriptions[0].settings["prefetch_factor"] in (15, 16)
    assert top(UNEVEN) == RULE


def test_one_worker_is_one() -> None:
    alone = UNEVEN.but(workers=1, fetch_walls=[1.0] * 58 + [200.0] * 2)
    assert "; 1 worker, busy" in sick(RULE, alone).evidence[0]


def test_well() -> None:
    assert asked(RULE, UNEVEN.but(wait=0.1)) is None
    assert asked(RULE, UNEVEN.but(fetch_walls=[9.0] * 60)) is None


COLD = [0.3] * 56 + [30.0] * 4
"""Each fifteenth batch comes from a shard that is not cached: 2.28 ms on average, 1.98 of them beyond the usual."""


def test_without_workers_the_loop_itself_waits_for_a_cold_shard() -> None:
    loop = Loop(wait=2.4, forward=0.5, backward=0.6, optimizer=0.2, workers=0, fetch_cpu=0.25, fetch_walls=COLD)
    found = sick(RULE, loop)
    assert found.cost_share == pytest.approx(1.98 / 3.7, rel=0.02)
    assert not found.prescriptions[0].settings
    assert top(loop) == RULE
    beside = asked("loader-without-workers", loop)
    assert beside is None or beside.cost_share < 0.3, "two batches ahead do not bridge it"


def test_without_workers_slow_batches_that_compute_are_another_rule() -> None:
    """Each fifteenth decodes a chunk: the work stays, however it is spread."""
    assert asked(RULE, UNEVEN.but(workers=0, wait=10.0, fetch_walls=COLD, fetch_cpu=2.2)) is None


def test_busy_workers_are_told_of_slow_batches_only_if_these_wait() -> None:
    walls = [15.0] * 50 + [100.0] * 10  # 29 ms on average, for 10 ms of training
    found = sick(RULE, UNEVEN.but(fetch_walls=walls))
    assert found.cost_share == pytest.approx(4 / 14, rel=0.02), "if all took 15 ms, two workers would keep up"
    assert not found.prescriptions[0].settings, "no stock builds up"
    assert asked(RULE, UNEVEN.but(fetch_walls=walls, fetch_cpu=28.0)) is None


def test_workers_that_just_keep_up_gain_from_a_stock() -> None:
    """22 ms for two workers and 10 ms of training, in steps of 20: 11 would do."""
    walls = [10.6] * 56 + [182.0] * 4
    found = surely(RULE, UNEVEN.but(wait=10.0, fetch_walls=walls))
    assert int(found.prescriptions[0].settings["prefetch_factor"]) > 2
    assert found.prescriptions[0].predicted_speedup == pytest.approx(20 / 11, rel=0.03)


def test_a_stock_that_outlasts_the_slow_batch_is_not_the_cause() -> None:
    assert asked(RULE, UNEVEN.but(loader={"prefetch_factor": 16})) is None


def test_waiting_at_the_edge_of_epochs_is_another_rule() -> None:
    assert asked(RULE, UNEVEN.but(wait=0.1, edge=100.0, steps_per_epoch=20)) is None


def test_no_stock_that_would_not_fit() -> None:
    assert asked(RULE, UNEVEN.but(batch_bytes=1.5e9)) is None


def queued(loop: Loop, ms: float) -> Loop:
    """The loop, with the measured milliseconds of a fetch in which the worker waited for a core, on average."""
    (fetch,) = loop.recording().fetches
    return with_more(loop, fetches=(replace(fetch, queued_s=ms * 1e-3 * fetch.batches),))


def test_fetches_that_waited_for_a_core_are_not_uneven() -> None:
    """As judged on the transfer-learning tutorial: 1.2 ms usually, 31 ms at worst, two workers on two busy cores."""
    # The 60 fetches above take 9.6 ms on average, 6.6 more than the usual one.
    assert asked(RULE, queued(UNEVEN, 6.0)) is None
    assert asked(RULE, queued(UNEVEN, 0.5)) is not None


def test_without_the_kernels_count_a_busy_machine_explains_fetches_that_compute() -> None:
    assert asked(RULE, UNEVEN.but(fetch_cpu=2.5, cpu_util=99.0)) is None
    assert asked(RULE, UNEVEN.but(fetch_cpu=2.5, cpu_util=40.0)) is not None
    assert asked(RULE, UNEVEN.but(fetch_cpu=0.2, cpu_util=99.0)) is not None, "it waits for something else"


def test_two_loaders_side_by_side_have_workers_each() -> None:
    """A step of 10 ms that takes a batch from each of two loaders: their four workers are as busy as two for one."""
    both = replace(UNEVEN.vitals(), batches_per_step=2.0, loaders_at_once=2.0)
    found = rule(RULE).finds(both)
    assert found is not None
    assert [one.replace("4 workers", "2 workers") for one in found.evidence] == [*sick(RULE, UNEVEN).evidence]
    assert found.prescriptions[0].settings["prefetch_factor"] in (15, 16)
    # What is fetched ahead lies in memory for each of them.
    assert rule(RULE).finds(replace(UNEVEN.vitals(), batch_bytes=5e8)) is not None
    assert rule(RULE).finds(replace(both, batch_bytes=5e8)) is None


def test_how_often_no_batch_was_ready_is_named_where_it_was_counted() -> None:
    (fetch,) = UNEVEN.recording().fetches
    counted = with_more(UNEVEN, fetches=(replace(fetch, ready_batches=2.0, empty_share=0.08),))
    (said,) = (one for one in sick(RULE, counted).evidence if "ready" in one)
    assert " 8 % of the time" in said and "average 2 " in said
    assert not any("ready" in one for one in sick(RULE, UNEVEN).evidence)

"""uneven-batches: few slow batches outlast the stock of prefetched ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis.rules.input.data_starved import check
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, with_more

RULE = "uneven-batches"
UNEVEN = Loop(wait=4.0, workers=2, fetch_cpu=1.0, fetch_walls=[3.0] * 58 + [200.0] * 2, consumer_cpu=10.0)
"""9.6 ms on average, 6.6 more than the usual fetch."""
COLD = [0.3] * 56 + [30.0] * 4
"""Each fifteenth batch comes from a shard that is not cached: 2.28 ms on average, 1.98 of them beyond the usual."""
ALONE = Loop(wait=2.4, forward=0.5, backward=0.6, optimizer=0.2, workers=0, fetch_cpu=0.25, fetch_walls=COLD)


def queued(loop: Loop, ms: float) -> Loop:
    """The loop, with the measured milliseconds of a fetch in which the worker waited for a core, on average."""
    (fetch,) = loop.recording().fetches
    return with_more(loop, fetches=(replace(fetch, queued_s=ms * 1e-3 * fetch.batches),))


def test_sick() -> None:
    found = sick(RULE, UNEVEN)
    assert found.kind == "lost" and found.cost_share == pytest.approx(4 / 14, rel=0.02)
    # 200 ms and half as much again, at 2 workers and 10 ms a step: some 15 ahead in each
    assert found.prescriptions[0].settings["prefetch_factor"] in (15, 16)
    assert found.prescriptions[0].predicted_speedup is None, "no forecast: try it"
    assert top(UNEVEN) == RULE


def test_without_workers_the_loop_itself_waits_for_a_cold_shard() -> None:
    found = sick(RULE, ALONE)
    assert found.cost_share == pytest.approx(2.4 / 3.7, rel=0.02)
    assert not found.prescriptions[0].settings
    assert top(ALONE) == RULE


@pytest.mark.parametrize(
    "loop",
    [
        UNEVEN.but(wait=0.1),
        UNEVEN.but(fetch_walls=[9.0] * 60),
        ALONE.but(fetch_cpu=2.2),  # slow batches compute: the work stays, however it is spread
        UNEVEN.but(wait=0.1, edge=100.0, steps_per_epoch=20),  # the edge of epochs
        queued(UNEVEN, 6.0),  # they queued for a core: more processes than cores, other programs
        UNEVEN.but(fetch_walls=[15.0] * 50 + [100.0] * 10),  # 29 ms for 10 ms of training: no stock builds up
    ],
    ids=["hidden", "even", "computing", "edge", "queued", "busy"],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_no_stock_that_would_not_fit() -> None:
    cures = sick(RULE, UNEVEN.but(batch_bytes=1.5e9)).prescriptions
    assert not any(one.settings for one in cures) and cures


def test_two_loaders_side_by_side_have_workers_each() -> None:
    """A step of 10 ms that takes a batch from each of two loaders: their four workers are as busy as two for one."""
    both = check(replace(UNEVEN.vitals(), batches_per_step=2.0, loaders_at_once=2.0))
    assert both is not None and both.prescriptions[0].settings["prefetch_factor"] in (15, 16)


def test_how_often_no_batch_was_ready_is_named_where_it_was_counted() -> None:
    (fetch,) = UNEVEN.recording().fetches
    counted = with_more(UNEVEN, fetches=(replace(fetch, ready_batches=2.0, empty_share=0.08),))
    (said,) = (one for one in sick(RULE, counted).evidence if "ready" in one)
    assert said.startswith("8 %") and "(2 on average)" in said

"""too-many-workers: more computing workers than cores, and fewer are forecast to be faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.found import asked, sick, surely, top
from tests.support.recordings import Loop, with_more

RULE = "too-many-workers"
# Two cores give 12 + 12 ms of CPU in 12 ms, and taking a batch from a worker 1.3 more; yet a step takes 14.8.
COMPUTES: dict[str, Any] = {
    "forward": 5.0,
    "backward": 5.0,
    "optimizer": 2.0,
    "consumer_cpu": 12.0,
    "cores": 2.0,
    "cpu_util": 97.0,
}
CROWDED = Loop(wait=2.8, workers=8, fetch=50.0, fetch_cpu=12.0, **COMPUTES)


def test_sick() -> None:
    found = sick(RULE, CROWDED)
    assert 0.05 < found.cost_share < 0.15
    cure = found.prescriptions[0]
    assert cure.settings == {"num_workers": 2}
    assert cure.predicted_speedup is not None and cure.predicted_speedup > 1.05


def test_well() -> None:
    assert asked(RULE, CROWDED.but(workers=2, fetch=25.0)) is None


def test_a_fetch_that_waits_may_have_more_workers_than_cores() -> None:
    # As recorded: 8 workers sleep 14 ms a batch, 0.9 ms of it on a core, and the training takes both cores.
    own: dict[str, Any] = {"forward": 0.7, "backward": 0.8, "optimizer": 0.4, "cores": 2.0, "cpu_util": 92.0}
    sleeping = Loop(wait=0.9, workers=8, fetch=14.4, fetch_cpu=0.93, consumer_cpu=4.3, **own)
    assert asked(RULE, sleeping) is None


def test_crowding_that_costs_nothing_is_left_alone() -> None:
    # The step is as long as the cores need for its work: fewer workers would not be faster.
    assert asked(RULE, CROWDED.but(wait=0.6)) is None


def queueing(loop: Loop, ms: float) -> Loop:
    """The loop, with the measured milliseconds of a fetch in which the worker waited for a core."""
    (fetch,) = loop.recording().fetches
    return with_more(loop, fetches=(replace(fetch, queued_s=ms * 1e-3 * fetch.batches),))


def test_a_fetch_that_was_measured_to_wait_for_something_else() -> None:
    # the same wall and CPU seconds, but hardly a millisecond of waiting for a core: the network, a lock
    assert asked(RULE, queueing(CROWDED, 1.0)) is None


def test_cores_that_other_programs_take_are_not_given_back_by_fewer_workers() -> None:
    # loop and workers use 86 % of two cores that are never free: with fewer workers they would get less of them
    assert asked(RULE, queueing(CROWDED, 37.0)) is None


def test_idle_workers_beside_a_slow_model_cost_no_time() -> None:
    # one of the eight is enough, and the cores have time to spare: fewer would be as fast, and not faster
    own: dict[str, Any] = {"forward": 20.0, "backward": 20.0, "cores": 2.0, "consumer_cpu": 40.0}
    assert asked(RULE, Loop(workers=8, fetch=12.0, fetch_cpu=12.0, wait=0.5, **own)) is None


def test_the_fewest_that_are_enough_are_advised() -> None:
    # on 8 cores 40 workers crowd, but the training needs no more than a few of them
    crowd: dict[str, Any] = {"forward": 20.0, "backward": 20.0, "optimizer": 10.0, "consumer_cpu": 200.0, "cores": 8.0}
    found = surely(RULE, queueing(Loop(wait=6.0, workers=40, fetch=800.0, fetch_cpu=120.0, **crowd), 680.0))
    assert "waits 680 ms for a core" in found.evidence[0]
    assert found.prescriptions[0].settings["num_workers"] in (3, 4)


# As recorded: 4 workers hand over rows of a tensor in memory. Seven batches lie ready, and each costs 3.6 ms to take.
# By itself the loop fetches in 0.58 ms and trains in 1.22: its caches are warm then.
OWN: dict[str, Any] = {"forward": 0.5, "backward": 0.6, "optimizer": 0.4, "cores": 2.0, "consumer_cpu": 2.7}
HANDED = Loop(steps=600, wait=3.6, workers=4, fetch=0.84, **OWN)


def test_rows_in_memory_are_fetched_sooner_than_handed_over() -> None:
    found = sick(RULE, HANDED)
    assert found.headline.startswith("4 workers cost more than they save: ")
    assert found.cost_share == pytest.approx(1.0 - (1.22 + 0.58) / 5.1, abs=0.03)
    (cure,) = found.prescriptions
    assert cure.settings == {"num_workers": 0}
    assert cure.predicted_speedup == pytest.approx(5.1 / (1.22 + 0.58), rel=0.1)
    assert (cure.predicted_low or 9.0) <= 5.1 / (1.22 + 0.58) <= (cure.predicted_high or 0.0)
    assert top(HANDED) == RULE


@pytest.mark.parametrize("fetch", [0.84, 3.0])
def test_where_waking_is_dearer_than_anywhere_what_is_left_of_the_wait_is_handing_over(fetch: float) -> None:
    slow = HANDED.but(wait=12.0, fetch=fetch)
    assert sick(RULE, slow).cost_share == pytest.approx(1.0 - (1.22 + fetch * 0.7) / 13.5, abs=0.06)


def test_a_sampler_of_ones_own_may_be_what_takes_long() -> None:
    assert asked(RULE, HANDED.but(wait=12.0, loader={"sampler": "BucketSampler"})) is None
    assert asked(RULE, HANDED.but(wait=12.0, loader={"sampler": "RandomSampler"})) is not None


def test_a_wait_that_its_workers_explain_is_for_batches_that_are_slow_to_come() -> None:
    assert asked(RULE, HANDED.but(wait=12.0, workers=1, fetch=9.0)) is None


def test_one_worker_may_be_one_too_many() -> None:
    assert sick(RULE, HANDED.but(workers=1)).headline.startswith("The worker costs more than it saves: ")


def test_workers_that_fetch_what_the_loop_could_not_are_kept() -> None:
    assert asked(RULE, HANDED.but(fetch=4.6)) is None  # without them a step would be longer
    assert asked(RULE, HANDED.but(fetch=3.8)) is None  # and here nobody can tell


def test_starting_anew_each_epoch_is_another_rules_matter() -> None:
    # taking a batch costs 0.3 ms; the rest of the wait is what four processes take to start, every 20 steps
    starts = HANDED.but(wait=0.3, edge=66.0, steps_per_epoch=20)
    assert asked(RULE, starts) is None
    assert top(starts) == "workers-restart-each-epoch"

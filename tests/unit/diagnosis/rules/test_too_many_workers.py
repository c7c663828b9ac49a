"""too-many-workers: the loop waits for workers, and fewer of them, or none, are forecast to be faster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.found import asked, named, sick, surely, top
from tests.support.recordings import Loop, with_more

RULE = "too-many-workers"
OWN: dict[str, Any] = {"forward": 0.5, "backward": 0.6, "optimizer": 0.4, "cores": 2.0, "consumer_cpu": 2.7}
HANDED = Loop(steps=600, wait=3.6, workers=4, fetch=0.84, **OWN)
"""As recorded: four workers hand over rows of a tensor in memory. By itself the loop fetches in 0.58 ms and trains in
1.22: its caches are warm then."""


def queueing(loop: Loop, ms: float) -> Loop:
    """The loop, with the measured milliseconds of a fetch in which the worker waited for a core."""
    (fetch,) = loop.recording().fetches
    return with_more(loop, fetches=(replace(fetch, queued_s=ms * 1e-3 * fetch.batches),))


CROWDED = queueing(
    Loop(
        wait=6.0, workers=8, fetch=75.0, fetch_cpu=12.0, forward=5.0, backward=5.0, optimizer=2.0, consumer_cpu=12.0,
        cores=2.0,
    ),
    60.0,
)  # fmt: skip
"""Two cores give 12 + 12 ms of CPU in 12 ms; yet a step takes 18."""


def test_rows_in_memory_are_fetched_sooner_than_handed_over() -> None:
    found = sick(RULE, HANDED)
    assert found.kind == "lost" and found.cost_share == pytest.approx(3.6 / 5.1, abs=0.01)
    (cure,) = found.prescriptions
    assert cure.settings == {"num_workers": 0}
    assert (cure.predicted_low or 9.0) <= 5.1 / (1.22 + 0.58) <= (cure.predicted_high or 0.0)
    assert named(HANDED) == [RULE]


def test_workers_that_outnumber_the_cores() -> None:
    found = surely(RULE, CROWDED)
    assert found.cost_share == pytest.approx(6 / 18, abs=0.01)
    cure = found.prescriptions[0]
    assert 1 <= int(cure.settings["num_workers"]) <= 2 and (cure.predicted_speedup or 0) > 1.05
    assert "60.0 ms of it waiting for a core" in found.evidence[0]
    assert top(CROWDED) == RULE


@pytest.mark.parametrize(
    "loop",
    [
        queueing(CROWDED.but(workers=2, fetch=25.0, told={}), 10.0),  # no more than cores
        queueing(CROWDED.but(told={}), 1.0),  # it waits for something else: the network, a lock
        queueing(CROWDED.but(wait=0.6, told={}), 60.0),  # nobody waits for them
        Loop(workers=8, fetch=12.0, fetch_cpu=12.0, wait=0.5, forward=20.0, backward=20.0, cores=2.0),
        HANDED.but(wait=12.0, workers=1, fetch=9.0),  # the wait is for a batch that is slow to come
        HANDED.but(fetch=4.6),  # without them a step would be longer
    ],
    ids=["cores", "waits", "hidden", "idle", "slow", "needed"],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_starting_anew_each_epoch_is_another_rules_matter() -> None:
    # taking a batch costs 0.04 ms; the rest of the wait is what four processes take to start, every 20 steps
    starts = HANDED.but(wait=0.04, edge=66.0, steps_per_epoch=20)
    assert asked(RULE, starts) is None
    assert top(starts) == "workers-restart-each-epoch"

"""slow-collate: putting samples together is the dear part of an exposed fetch."""

from __future__ import annotations

import pytest

from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop

RULE = "slow-collate"
PADDING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, collate=60.0, cores=2.0, loader={"collate": "pad"})
STACKING = Loop(
    wait=0.6, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5, collate=0.4, cores=2.0
)


def test_sick() -> None:
    found = sick(RULE, PADDING)
    assert found.kind == "lost" and found.cost_share == pytest.approx(0.75, abs=0.02)
    assert "pad" in found.headline and "60.0 ms of the 80.0 ms" in found.evidence[0]
    assert top(PADDING) == RULE


def test_stacking_samples_from_memory_costs_the_whole_fetch() -> None:
    found = sick(RULE, STACKING)
    assert found.cost_share == pytest.approx(0.545, abs=0.02)
    assert "BatchSampler" in found.prescriptions[0].code
    assert named(STACKING) == [RULE]


def test_a_stream_is_not_told_to_index() -> None:
    cures = sick(RULE, STACKING.but(loader={"dataset_kind": "iterable", "sampler": ""})).prescriptions
    assert all("indices" not in one.code and "ampler" not in one.code for one in cures)
    assert "__iter__" in cures[0].code


@pytest.mark.parametrize(
    "loop",
    [
        Loop(wait=0.2, collate=0.2),
        PADDING.but(wait=0.1),  # hidden by workers
        PADDING.but(collate=20.0),  # the samples are dearer
        # idle workers: the corpus' stream-seen-twice
        Loop(wait=1.2, forward=1.4, backward=2.4, optimizer=0.4, workers=2, fetch=0.5, collate=0.45, cores=2.0),
        Loop(wait=40.0, fetch_cpu=1.0, collate=39.0, consumer_cpu=10.0),  # it sleeps: workers overlap it
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_what_the_loop_waits_for_at_an_epochs_begin_is_not_billed_to_the_collate() -> None:
    # One worker starts anew every 10 steps: 74 % wait, nearly all of it edge (short-epochs-restart-workers).
    short = Loop(
        wait=1.6, edge=50.0, steps_per_epoch=10, forward=0.6, backward=0.9, optimizer=0.5, workers=1,
        fetch=0.6, collate=0.5, cores=2.0,
    )  # fmt: skip
    assert top(short) == "workers-restart-each-epoch"
    assert asked(RULE, short) is None

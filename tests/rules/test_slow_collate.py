"""slow-collate: putting samples together is the dear part of an exposed fetch."""

from __future__ import annotations

import pytest
from found import asked, named, sick, top
from recordings import Loop

RULE = "slow-collate"
PADDING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, collate=60.0, cores=2.0, loader={"collate": "pad"})
STACKING = Loop(
    wait=0.6, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5, collate=0.4, cores=2.0
)


def test_sick() -> None:
    found = sick(RULE, PADDING)
    assert found.cost_share == pytest.approx(0.75 * 0.75, abs=0.02)
    assert "pad" in found.headline
    assert top(PADDING) == RULE


def test_stacking_samples_from_memory_costs_the_whole_fetch() -> None:
    found = sick(RULE, STACKING)
    assert found.cost_share == pytest.approx(0.545, abs=0.02)
    assert "BatchSampler" in found.prescriptions[0].code
    assert named(STACKING) == [RULE]


def test_well() -> None:
    assert asked(RULE, Loop(wait=0.2, collate=0.2)) is None


def test_a_collate_hidden_by_workers_is_left_alone() -> None:
    assert asked(RULE, PADDING.but(wait=0.1)) is None


def test_dear_samples_are_another_rule() -> None:
    assert asked(RULE, PADDING.but(collate=20.0)) is None


def test_where_workers_hide_it_they_come_first() -> None:
    # A collate that sleeps: workers overlap it.
    loop = Loop(wait=40.0, fetch_cpu=1.0, collate=39.0, consumer_cpu=10.0)
    assert named(loop) == ["loader-without-workers"]

"""slow-epoch-start: first batches that come late, where no worker is started for them."""

from __future__ import annotations

import re

import pytest

from tests.support.found import asked, sick, top
from tests.support.recordings import Loop

RULE = "slow-epoch-start"
MILLIONS = {"sampler": "RandomSampler", "dataset_len": 2_000_000}
SHUFFLING = Loop(wait=0.5, edge=100.0, steps_per_epoch=20, loader=MILLIONS)
STREAM = {"sampler": "_InfiniteConstantSampler", "dataset_kind": "iterable", "dataset_len": None}


def test_sick() -> None:
    found = sick(RULE, SHUFFLING)
    # 4 edges of 100 ms in 99 steps of 10.5 ms
    assert found.kind == "lost" and found.cost_share == pytest.approx(4 * 100 / (400 + 99 * 10.5), rel=0.03)
    assert "RandomSampler" in " ".join(found.evidence)
    assert "replacement=True" in found.prescriptions[0].code
    assert found.prescriptions[0].predicted_speedup is None, "no forecast: try it"
    assert top(SHUFFLING) == RULE


@pytest.mark.parametrize(
    "loop",
    [
        SHUFFLING.but(steps_per_epoch=1000),
        SHUFFLING.but(edge=1.0),
        SHUFFLING.but(workers=2, fetch=1.0),  # workers that start anew
        SHUFFLING.but(wait=95.0, fetch=98.0),  # a slow first batch has to be fetched anyway
        SHUFFLING.but(loader=STREAM, wait=48.0, fetch=48.0, edge=60.0),  # a stream's last batch, not full and dropped
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_workers_that_stay_do_not_explain_it() -> None:
    stays = SHUFFLING.but(workers=2, fetch=1.0, loader={**MILLIONS, "persistent_workers": True})
    assert sick(RULE, stays).cost_share > 0.1


def test_streams_are_told_to_begin_once() -> None:
    found = sick(RULE, SHUFFLING.but(loader=STREAM))
    (cure,) = found.prescriptions
    assert "iter(loader)" in cure.code and "Infinite" not in " ".join(found.evidence)


@pytest.mark.parametrize("sampler", ["WeightedRandomSampler", "DistributedSampler", "Buckets"])
def test_no_other_draw_is_advised_where_the_sampler_is_the_training(sampler: str) -> None:
    (cure,) = sick(RULE, SHUFFLING.but(loader={"sampler": sampler, "dataset_len": 640})).prescriptions
    assert not cure.code


def test_a_weighted_draw_is_cut_to_what_an_epoch_uses() -> None:
    """20 batches of an epoch of 9375 are used, as recorded: the same weights, fewer drawn by them, never too few."""
    left = {"sampler": "WeightedRandomSampler", "dataset_len": 300_000, "batches": 9375}
    (cure,) = sick(RULE, SHUFFLING.but(steps_per_epoch=20, loader=left)).prescriptions
    said = re.search(r"num_samples=(\d+)\)", cure.code)
    assert said is not None and 640 <= int(said[1]) <= 1000 and f"about {said[1]}:" in cure.text


def test_a_weighted_draw_of_which_two_epochs_were_seen_is_not_cut_short() -> None:
    """As with `--steps 103`: one whole epoch of 100 batches and three of the next, the first of them warm-up."""
    loader = {"sampler": "WeightedRandomSampler", "dataset_len": 3200, "batches": 100}
    early = SHUFFLING.but(steps=103, steps_per_epoch=100, loader=loader)
    codes = [one.code for found in [asked(RULE, early)] if found is not None for one in found.prescriptions]
    assert not any("num_samples" in code for code in codes)

"""slow-epoch-start: first batches that come late, where no worker is started for them."""

from __future__ import annotations

import re

import pytest

from gpu_doctor.diagnosis.forecast.epoch_end import LEAVES, leaving_share
from gpu_doctor.recording import Speeds
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop

RULE = "slow-epoch-start"
MILLIONS = {"sampler": "RandomSampler", "dataset_len": 2_000_000}
DRAWN = {"speeds": Speeds(drawn_index_s=5e-8, freed_index_s=1e-8)}
SHUFFLING = Loop(wait=0.5, edge=100.0, steps_per_epoch=20, loader=MILLIONS, setup=DRAWN)


def test_sick() -> None:
    found = sick(RULE, SHUFFLING)
    # 4 edges of 100 ms in 99 steps of 10.5 ms
    assert found.cost_share == pytest.approx(4 * 100 / (400 + 99 * 10.5), rel=0.03)
    assert "RandomSampler" in " ".join(found.evidence)
    cure = found.prescriptions[0]
    assert cure.code is not None and "replacement=True" in cure.code
    assert cure.predicted_speedup == pytest.approx(1 / (1 - found.cost_share))
    assert top(SHUFFLING) == RULE


def test_well() -> None:
    assert asked(RULE, SHUFFLING.but(steps_per_epoch=1000)) is None
    assert asked(RULE, SHUFFLING.but(edge=1.0)) is None


def test_workers_that_start_anew_are_another_matter() -> None:
    workers = SHUFFLING.but(workers=2, fetch=1.0)
    assert asked(RULE, workers) is None
    assert sick(RULE, workers.but(loader={**MILLIONS, "persistent_workers": True})).cost_share > 0.1


def test_a_slow_first_batch_has_to_be_fetched_anyway() -> None:
    assert asked(RULE, SHUFFLING.but(wait=95.0, fetch=98.0)) is None


def test_short_epochs_of_short_steps_are_no_slow_start() -> None:
    # 0.4 ms for a new iterator every second step of 1 ms
    assert asked(RULE, Loop(forward=0.4, backward=0.4, optimizer=0.2, edge=0.4, steps_per_epoch=2)) is None


def test_streams_are_told_to_begin_once() -> None:
    stream = {"sampler": "_InfiniteConstantSampler", "dataset_kind": "iterable", "dataset_len": None}
    found = sick(RULE, SHUFFLING.but(loader=stream))
    (cure,) = found.prescriptions
    assert cure.code is not None and "iter(loader)" in cure.code and "Infinite" not in " ".join(found.evidence)
    # the last batch, not full and dropped, is fetched too
    assert asked(RULE, SHUFFLING.but(loader=stream, wait=48.0, fetch=48.0, edge=60.0)) is None


@pytest.mark.parametrize("sampler", ["WeightedRandomSampler", "DistributedSampler", "Buckets"])
def test_no_other_draw_is_advised_where_the_sampler_is_the_training(sampler: str) -> None:
    (cure,) = sick(RULE, SHUFFLING.but(loader={"sampler": sampler, "dataset_len": 640})).prescriptions
    assert not cure.code and cure.predicted_speedup is None


def test_a_weighted_draw_is_cut_to_what_an_epoch_uses() -> None:
    """20 batches of an epoch of 9375 are used, as recorded: the same weights, fewer drawn by them, never too few."""
    left = {"sampler": "WeightedRandomSampler", "dataset_len": 300_000, "batches": 9375}
    (cure,) = sick(RULE, SHUFFLING.but(steps_per_epoch=20, loader=left)).prescriptions
    said = re.search(r"num_samples=(\d+)\)", cure.code)
    assert said is not None and 640 <= int(said[1]) <= 1000 and f"about {said[1]} are used" in cure.text
    assert cure.predicted_speedup is not None and cure.predicted_speedup > 1.05


def test_a_weighted_draw_of_which_two_epochs_were_seen_is_not_cut_short() -> None:
    """As with `--steps 103`: one whole epoch of 100 batches and three of the next, the first of them warm-up."""
    loader = {"sampler": "WeightedRandomSampler", "dataset_len": 3200, "batches": 100}
    early = SHUFFLING.but(steps=103, steps_per_epoch=100, loader=loader)
    codes = [one.code for found in [asked(RULE, early)] if found is not None for one in found.prescriptions]
    assert not any("num_samples" in code for code in codes)


def test_what_an_epoch_drew_is_freed_at_its_end() -> None:
    """Two million indices take 20 ms to free; who leaves the loop early pays it outside of every phase."""
    freeing = SHUFFLING.but(other=2.0)
    assert leaving_share(freeing.vitals()) == pytest.approx(4 * 20 / (400 + 99 * 12.5), rel=0.03)
    cost = sick(RULE, SHUFFLING).cost_share
    assert sick(RULE, freeing).cost_share > cost
    assert asked("slow-python", freeing) is None  # the same seconds are not billed twice
    workers = {"workers": 2, "fetch": 1.0, "loader": {**MILLIONS, "sampler": "SequentialSampler"}}
    assert leaving_share(freeing.but(**workers).vitals()) == 0.0


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("break", True),
        ("break  # enough", True),
        ("if step == 40: break", True),
        ("return", True),
        ("return losses", False),
        ("continue", False),
        ("if loss.item() < 0.1: break", False),
        ("breaks = 3", False),
    ],
)
def test_a_line_that_leaves_a_loop(text: str, leaves: bool) -> None:
    assert bool(LEAVES.match(text)) is leaves

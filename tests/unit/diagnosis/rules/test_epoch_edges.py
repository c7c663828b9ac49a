"""epoch-edges: whose workers a cure keeps, and how many samples a weighted draw is cut to."""

from __future__ import annotations

import re

from tests.support.found import asked, sick
from tests.support.rule_loops.input import BOTH, SHUFFLING, evaluating


def test_the_workers_of_evaluation_are_kept_by_hand_and_come_first_where_they_cost_most() -> None:
    """A trial of the knob turns the training loader alone."""
    knob, by_hand = sick("workers-restart-each-epoch", evaluating(BOTH)).prescriptions[:2]
    assert knob.settings and by_hand.safety.value == "by-hand" and "5 passes" in by_hand.text
    assert by_hand.predicted_speedup is None
    alone = sick("workers-restart-each-epoch", BOTH).prescriptions[0]
    assert knob.predicted_speedup == alone.predicted_speedup
    most = evaluating(BOTH.but(evaluation=15.0), edge_ms=240.0)
    assert not sick("workers-restart-each-epoch", most).prescriptions[0].settings


def test_a_weighted_draw_is_cut_to_what_an_epoch_uses() -> None:
    """20 batches of an epoch of 9375 are used, as recorded: the same weights, fewer drawn by them, never too few."""
    loader = {"sampler": "WeightedRandomSampler", "dataset_len": 300_000, "batches": 9375}
    (cure,) = sick("slow-epoch-start", SHUFFLING.but(loader=loader)).prescriptions
    drawn = re.search(r"num_samples=(\d+)\)", cure.code)
    assert drawn is not None and 640 <= int(drawn[1]) <= 1000 and drawn[1] in cure.text


def test_a_weighted_draw_of_which_two_epochs_were_seen_is_not_cut_short() -> None:
    """As with `--steps 103`: one whole epoch of 100 batches and three of the next, the first of them warm-up."""
    loader = {"sampler": "WeightedRandomSampler", "dataset_len": 3200, "batches": 100}
    found = asked("slow-epoch-start", SHUFFLING.but(steps=103, steps_per_epoch=100, loader=loader))
    assert found is None or not any("num_samples" in one.code for one in found.prescriptions)

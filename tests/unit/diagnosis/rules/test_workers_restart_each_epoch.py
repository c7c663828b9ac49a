"""workers-restart-each-epoch: edges of epochs that cost more than the batch they hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.recording import Fetch, LoaderSetup
from gpu_doctor.recording.setup import EvaluationFacts
from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, with_more

RULE = "workers-restart-each-epoch"
SHORT = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, edge=100.0, steps_per_epoch=20)


def test_sick() -> None:
    found = sick(RULE, SHORT)
    # 4 edges of 100 ms in 99 steps of 10 ms, 5 ms of each for the first batch
    assert found.kind == "lost" and found.cost_share == pytest.approx(4 * 95 / (400 + 990), rel=0.03)
    cure = found.prescriptions[0]
    assert cure.settings == {"persistent_workers": True}
    assert cure.predicted_speedup == pytest.approx(1 / (1 - found.cost_share))
    assert top(SHORT) == RULE


def test_well() -> None:
    assert asked(RULE, SHORT.but(loader={"persistent_workers": True})) is None
    assert asked(RULE, SHORT.but(steps_per_epoch=1000)) is None


def test_a_slow_first_batch_is_not_the_start_of_workers() -> None:
    # Each edge waits 100 ms, and 95 of these is what a batch takes to fetch: it would be paid anyway.
    assert asked(RULE, SHORT.but(fetch=95.0)) is None


def test_no_workers_to_keep() -> None:
    assert asked(RULE, SHORT.but(workers=0)) is None


def test_a_loader_that_cannot_keep_them_is_advised_by_hand() -> None:
    refusing = SHORT.but(loader={"refusals": {"persistent_workers": "the iterator is there already"}})
    assert not sick(RULE, refusing).prescriptions[0].settings


VAL = "Images[1000] batch 32 SequentialSampler #0"


def evaluating(loop: Loop, edge_ms: float = 80.0, passes: int = 5, persistent: bool = False) -> Loop:
    """The loop with a pass over a loader of 10 batches after each epoch, whose begin takes so many milliseconds."""
    recording = loop.recording()
    loader = LoaderSetup(VAL, role="evaluation", num_workers=2, batches=10, persistent_workers=persistent)
    fetch = Fetch(VAL, 2, 10 * passes, 10 * passes * 3e-3, 10 * passes * 2e-3, 0.0, 1e5, np.empty(0))
    facts = EvaluationFacts(forwards=10 * passes, edge_s=passes * edge_ms * 1e-3)
    setup = replace(recording.setup, loaders=(*recording.setup.loaders, loader), evaluation=facts)
    return with_more(loop, setup=setup, fetches=(*recording.fetches, fetch))


# A pass of 100 ms after each 20 steps, here laid over all of them alike.
BOTH = SHORT.but(evaluation=5.0)


def test_evaluation_passes_start_workers_too() -> None:
    """As judged on the transfer-learning tutorial: half of the restarts are those of the evaluation loader."""
    found, alone = sick(RULE, evaluating(BOTH)), sick(RULE, BOTH)
    run_ms = 99 * 15 + 4 * 100 + 3 * 115  # the first step takes three times as long
    kept = 4 * (80 - 3.6) / run_ms
    assert found.cost_share == pytest.approx(alone.cost_share + kept, abs=0.01)
    assert "evaluation pass" in found.headline and any("5 evaluation passes" in one for one in found.evidence)
    knob, by_hand = found.prescriptions[:2]
    assert by_hand.safety.value == "by-hand" and "(5 passes)" in by_hand.text
    assert by_hand.predicted_speedup is None, "no forecast: try it"
    # A trial of the knob turns the training loader alone: its figure is as before.
    assert knob.settings == {"persistent_workers": True}
    assert knob.predicted_speedup == pytest.approx(alone.prescriptions[0].predicted_speedup)
    most = sick(RULE, evaluating(BOTH.but(evaluation=15.0), edge_ms=240.0)).prescriptions
    assert not most[0].settings, "where that is most of the price it comes first"


def test_one_epoch_with_many_evaluations_restarts_as_well() -> None:
    one_epoch = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, evaluation=5.0)
    found = sick(RULE, evaluating(one_epoch))
    assert [bool(one.settings) for one in found.prescriptions] == [False]
    assert "restarted for each evaluation pass:" in found.headline


def test_evaluation_workers_that_stay_or_cost_their_batch_alone_are_left() -> None:
    one_epoch = Loop(workers=2, fetch=5.0, fetch_cpu=4.0, evaluation=5.0)
    assert asked(RULE, evaluating(one_epoch, persistent=True)) is None
    assert asked(RULE, evaluating(one_epoch, edge_ms=4.0)) is None
    assert asked(RULE, evaluating(one_epoch, passes=1)) is None
    assert asked(RULE, one_epoch) is None, "not measured is no edge"


def test_tiny_fetches_are_better_done_by_the_loop_itself() -> None:
    # Steps of 11 ms, 4 edges of 100 ms in 99 of them; a batch takes 0.2 ms, less than handing it over.
    tiny = SHORT.but(fetch=0.2, fetch_cpu=0.2, wait=1.0)
    first, second = sick(RULE, tiny).prescriptions
    assert first.settings == {"num_workers": 0} and second.settings == {"persistent_workers": True}
    assert first.predicted_low is not None and first.predicted_high is not None
    assert first.predicted_low < (11 + 4 * 100 / 99) / 10.2 < first.predicted_high
    assert [one.settings for one in sick(RULE, SHORT).prescriptions] == [{"persistent_workers": True}]


def test_what_an_edge_is_made_of_is_named_where_it_was_timed() -> None:
    (fetch,) = SHORT.recording().fetches
    timed = replace(fetch, starts=5, start_s=0.25, first_s=0.2, ends=4, end_s=0.02)
    said = "50.0 ms, their first batch 40.0 ms more"
    (edge,) = (one for one in sick(RULE, with_more(SHORT, fetches=(timed,))).evidence if said in one)
    assert edge.endswith("ending them 5.00 ms")
    left_early = replace(timed, ends=0, end_s=0.0)
    (edge,) = (one for one in sick(RULE, with_more(SHORT, fetches=(left_early,))).evidence if said in one)
    assert "ending" not in edge
    assert not any("starting the processes" in one for one in sick(RULE, SHORT).evidence)

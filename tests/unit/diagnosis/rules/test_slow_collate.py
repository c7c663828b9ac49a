"""slow-collate: putting samples together is the dear part of an exposed fetch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, line

RULE = "slow-collate"
PADDING = Loop(wait=30.0, workers=2, fetch=80.0, fetch_cpu=78.0, collate=60.0, cores=2.0, loader={"collate": "pad"})
STACKING = Loop(
    wait=0.6, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5, collate=0.4, cores=2.0
)


def test_sick() -> None:
    found = sick(RULE, PADDING)
    # Two workers without the 60 ms deliver a batch of 20 ms every 10, which is what training takes: 40 -> 10 ms.
    assert found.cost_share == pytest.approx(0.75, abs=0.02)
    assert "pad" in found.headline
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


def test_well() -> None:
    assert asked(RULE, Loop(wait=0.2, collate=0.2)) is None


def test_a_collate_hidden_by_workers_is_left_alone() -> None:
    assert asked(RULE, PADDING.but(wait=0.1)) is None


def test_what_the_loop_waits_for_at_an_epochs_begin_is_not_billed_to_the_collate() -> None:
    # One worker starts anew every 10 steps: 74 % wait, nearly all of it edge (the clinic's short-epochs).
    short = Loop(
        wait=1.6, edge=50.0, steps_per_epoch=10, forward=0.6, backward=0.9, optimizer=0.5, workers=1,
        fetch=0.6, collate=0.5, cores=2.0,
    )  # fmt: skip
    assert top(short) == "workers-restart-each-epoch"
    assert asked(RULE, short) is None


def test_idle_workers_are_not_held_up_by_their_collate() -> None:
    # The clinic's stream-seen-twice: 0.45 ms of collate in a step of 5.4 ms, two workers, a wait for the hand-over.
    idle = Loop(wait=1.2, forward=1.4, backward=2.4, optimizer=0.4, workers=2, fetch=0.5, collate=0.45, cores=2.0)
    assert asked(RULE, idle) is None


def test_a_collate_is_billed_what_it_takes_and_not_the_rest_of_the_wait() -> None:
    half = Loop(wait=10.0, fetch=10.0, collate=5.5, cores=1.0, loader={"collate": "pad"})
    assert sick(RULE, half).cost_share == pytest.approx(0.275, abs=0.01)
    dear_samples = half.but(loader={})  # torch's collate, but 0.14 ms a sample are no look-up that indexing would save
    assert sick(RULE, dear_samples).cost_share == pytest.approx(0.275, abs=0.01)


def test_dear_samples_are_another_rule() -> None:
    assert asked(RULE, PADDING.but(collate=20.0)) is None


def test_where_workers_hide_it_they_come_first() -> None:
    # A collate that sleeps: workers overlap it.
    loop = Loop(wait=40.0, fetch_cpu=1.0, collate=39.0, consumer_cpu=10.0)
    assert named(loop) == ["loader-without-workers"]


ELSEWHERE = Loop(wait=10.0, fetch=10.0, collate=9.0, cores=1.0, loader={"collate": "Encoder.smart_batching_collate"})
ASKING = line("for batch in loader:", 0.45, "data_wait")


def test_a_collate_of_an_installed_package_is_not_the_users_to_vectorise() -> None:
    """As judged on sentence-transformers and PyG: 5.0 of 5.1 ms lie in a method of the package."""
    (cure,) = sick(RULE, ELSEWHERE.but(lines=(ASKING,))).prescriptions
    assert "Give the collate less to do" in cure.text and "ectorise" not in cure.text
    (theirs,) = sick(
        RULE, ELSEWHERE.but(loader={"collate": "default_collate"}, wait=20.0, fetch=20.0, collate=18.0)
    ).prescriptions
    assert "Give the collate less to do" in theirs.text


def test_a_collate_of_the_users_own_is() -> None:
    pads = replace(ASKING, text="out[i, : len(one)] = one", function="pad", line=3, share=0.4)
    for lines in ((), (pads, replace(ASKING, share=0.05)), (replace(pads, text="for one in samples:"),)):
        (cure,) = sick(RULE, ELSEWHERE.but(loader={"collate": "pad"}, lines=lines)).prescriptions
        assert cure.text == "Vectorise collate_fn"


def test_a_line_is_named_once() -> None:
    found = sick(RULE, ELSEWHERE.but(lines=(ASKING, replace(ASKING, share=0.02, in_torch=True))))
    (said,) = (one for one in found.evidence if "for batch in loader:" in one)
    assert said.startswith("100 % of the fetch at cell line 7")


def test_a_collate_of_a_librarys_own_loop_is_not_the_users_to_vectorise() -> None:
    """As judged on sentence-transformers' trainer: all of the fetch lies in the line that calls the loop."""
    call = line("trainer.train()", 0.45, "data_wait")
    trains = replace(call, phase="backward", share=0.3)
    (cure,) = sick(RULE, ELSEWHERE.but(lines=(call, trains))).prescriptions
    assert "Give the collate less to do" in cure.text
    (own,) = sick(RULE, ELSEWHERE.but(lines=(call,))).prescriptions
    assert own.text == "Vectorise collate_fn", "without a backward in it, it may be anything"

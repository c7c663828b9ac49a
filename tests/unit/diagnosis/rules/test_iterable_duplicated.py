"""iterable-duplicated: every worker delivers all items of an iterable-style dataset."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from gpu_doctor.capture.describe.loaders import describe
from gpu_doctor.diagnosis.rules.prescriptions import REPEATS
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop

RULE = "iterable-duplicated"
SAID = f"Stream has no get_worker_info: {REPEATS}."
STREAM: dict[str, Any] = {
    "dataset": "Stream",
    "dataset_kind": "iterable",
    "dataset_len": None,
    "batches": None,
    "refusals": {"num_workers": SAID},
}
COPIES = Loop(workers=4, fetch=8.0, loader=STREAM)


def test_sick() -> None:
    found = sick(RULE, COPIES)
    assert found.cost_share == pytest.approx(0.75)
    assert "get_worker_info" in found.prescriptions[0].code
    assert named(COPIES.but(wait=90.0))[0] == RULE, "what is trained on comes before how fast"


def test_well() -> None:
    assert asked(RULE, COPIES.but(loader={**STREAM, "refusals": {}})) is None


def test_one_worker_has_nobody_to_repeat() -> None:
    assert asked(RULE, COPIES.but(workers=1)) is None
    assert asked(RULE, COPIES.but(workers=0, wait=1.0)) is None


def test_a_map_style_dataset_is_shared_out_by_the_sampler() -> None:
    assert asked(RULE, COPIES.but(loader={"refusals": STREAM["refusals"]})) is None


def test_an_epoch_of_the_right_length_clears_the_dataset() -> None:
    # 20 steps of 32 make an epoch, as long as the dataset says it is: it shares out in a way that was not understood
    whole = COPIES.but(loader={**STREAM, "dataset_len": 640}, steps_per_epoch=20)
    assert asked(RULE, whole) is None


def test_an_epoch_of_several_lengths_convicts_it() -> None:
    # nothing was read off its code, but an epoch holds everything four times
    counted = COPIES.but(loader={**STREAM, "dataset_len": 160, "refusals": {}}, steps_per_epoch=20)
    found = sick(RULE, counted)
    assert found.cost_share == pytest.approx(0.75)
    assert any("640 samples" in one for one in found.evidence)


class Stream(IterableDataset[Any]):
    """Delivers everything to everybody."""

    def __iter__(self) -> Any:
        return iter(range(4))


def test_the_words_are_those_of_the_loader() -> None:
    assert REPEATS in describe(DataLoader(Stream(), num_workers=2)).refusals["num_workers"]


def test_copies_come_before_what_it_costs_to_hand_them_over() -> None:
    # each batch costs more to take than to fetch: without workers the loop would be faster, and that is not the trouble
    dear = COPIES.but(workers=2, fetch=0.8, wait=5.0, steps=600)
    assert named(dear)[0] == RULE and "too-many-workers" not in named(dear)

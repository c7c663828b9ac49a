"""Cures that a trial of this loop would refuse are by hand, as the knobs themselves say."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.diagnosis import BY_OPTIMIZER, NO_OPTIMIZER
from gpu_doctor.diagnosis.rules.prescriptions import SHARD_FIRST, on_loader
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording.setup import ModelFacts
from gpu_doctor.trials import knobs
from tests.support.recordings import Loop, on_gpu

PREDICTS = on_gpu(backward=0.0, optimizer=0.0, tensor_active=None, setup={"optimizers": ()})
ON = {"amp": "bf16"}


def test_the_table_is_what_the_knobs_say() -> None:
    trains = PREDICTS.but(setup={"model": ModelFacts(convolutions=3), "layers": {"Conv2d": 3}}).recording().setup
    predicts = dataclasses.replace(trains, optimizers=())
    for name in BY_OPTIMIZER:
        assert "No torch optimizer" in knobs.known(name).reason(ON.get(name, True), predicts)
    asking = [
        name for name in knobs.KNOBS if "No torch optimizer" in knobs.known(name).reason(ON.get(name, True), predicts)
    ]
    assert set(asking) == set(BY_OPTIMIZER)


def test_a_loop_that_predicts_is_told_why_there_is_no_trial() -> None:
    cure = diagnose(PREDICTS.recording()).hints[0].prescriptions[0]
    assert not cure.settings and cure.safety is Safety.BY_HAND and cure.code and NO_OPTIMIZER in cure.text


def test_a_loop_that_trains_is_offered_a_trial() -> None:
    cure = diagnose(on_gpu(tensor_active=None).recording()).hints[0].prescriptions[0]
    assert cure.settings == {"amp": "bf16"} and NO_OPTIMIZER not in cure.text


def test_a_setting_that_a_loader_refuses_is_left_to_the_hand_and_says_why() -> None:
    loader = Loop(workers=4).recording().setup.loaders[0]
    given = on_loader(loader, "prefetch_factor", 4, "Fetch 4 batches ahead")
    assert given.settings == {"prefetch_factor": 4} and given.safety is Safety.SAFE
    stands = dataclasses.replace(loader, refusals={"prefetch_factor": "the iterator is there already"})
    refused = on_loader(stands, "prefetch_factor", 4, "Fetch 4 batches ahead")
    assert not refused.settings and refused.safety is Safety.BY_HAND
    assert "the iterator is there already" in refused.text


@pytest.mark.parametrize(("now", "settings"), [(0, {"num_workers": 1}), (4, {})])
def test_one_worker_for_an_unsharded_stream_is_tried_only_where_there_was_none(
    now: int, settings: dict[str, int]
) -> None:
    loader = Loop(workers=now).recording().setup.loaders[0]
    stream = dataclasses.replace(loader, refusals={"num_workers": f"every worker repeats it. {SHARD_FIRST}."})
    assert on_loader(stream, "num_workers", 1, "Load with 1 worker").settings == settings

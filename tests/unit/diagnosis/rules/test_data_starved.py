"""data-starved: cures that are run or ordered, storage as evidence, two loaders, and the second run of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture.describe.loaders import describe
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.rules.input.data_starved import check
from gpu_doctor.diagnosis.rules.prescriptions import REPEATS, SHARD_FIRST, with_workers
from gpu_doctor.trials import race
from tests.support.found import sick, silence
from tests.support.recordings import Loop
from tests.support.rule_loops.input import BUSY, FOUR, IN_MEMORY, LOCKED, MANY, SLEEPING, UNEVEN, reading


class Stream(IterableDataset[int]):
    """Items in one order, whichever worker asks."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))


def test_indexing_by_whole_batches_delivers_the_same_samples() -> None:
    rows = torch.arange(20.0)
    loader = DataLoader(TensorDataset(rows), batch_size=6, drop_last=True)
    ordered = {"dataset": "TensorDataset", "sampler": "SequentialSampler", "drop_last": True, "batch_size": 6}
    names: dict[str, Any] = {"loader": loader, "DataLoader": DataLoader}
    exec(sick("slow-getitem", IN_MEMORY.but(loader=ordered)).prescriptions[0].code, names)
    assert [one.tolist() for (one,) in names["loader"]] == [one.tolist() for (one,) in loader]


def test_a_stream_that_workers_would_repeat_is_sharded_first() -> None:
    said = describe(DataLoader(Stream(), batch_size=4, num_workers=1)).refusals["num_workers"]
    assert REPEATS in said
    stream = {"dataset_kind": "iterable", "refusals": {"num_workers": said}}
    cure = sick("too-few-workers", BUSY.but(workers=1, fetch=20.0, loader=stream)).prescriptions[0]
    assert not cure.settings and cure.code.index("get_worker_info") < cure.code.index("num_workers=")


def test_one_worker_of_a_stream_repeats_nothing() -> None:
    stream = {"dataset_kind": "iterable", "refusals": {"num_workers": f"Every worker would repeat it. {SHARD_FIRST}."}}
    (loader,) = Loop(loader=stream).recording().setup.loaders
    one, two = (with_workers(loader, count, Forecast(1.5, 1.2, 1.9, 0.02, "why")) for count in (1, 2))
    assert one.settings == {"num_workers": 1} and one.safety.value == "safe" and "get_worker_info" not in one.code
    assert not two.settings and "get_worker_info" in two.code


@pytest.mark.parametrize(("loop", "first"), [(SLEEPING, "loader-without-workers"), (BUSY, "too-few-workers")])
def test_where_workers_pay_they_are_the_cause_and_the_storage_is_evidence(loop: Loop, first: str) -> None:
    (found,) = diagnose(reading(loop, 3e6, 3e6)).findings
    assert found.rule == first and any("3 MiB" in one for one in found.evidence)
    assert [one.safety.value for one in found.prescriptions] == ["safe", "by-hand"]
    low = found.prescriptions[0].predicted_low
    assert low is not None and low <= 1.1, "the storage may be at its limit"
    (warm,) = diagnose(reading(loop, 3e6, 0.0)).findings
    assert len(warm.prescriptions) == 1 and not any("storage" in one for one in warm.evidence)


def test_bytes_from_storage_that_were_not_counted_are_a_reason_to_be_silent() -> None:
    assert silence("slow-storage", reading(MANY, 20e6, None))


def test_two_loaders_side_by_side_have_workers_each() -> None:
    """A step of 10 ms that takes a batch from each of two loaders: their four workers are as busy as two for one."""
    both = check(replace(UNEVEN.vitals(), batches_per_step=2.0, loaders_at_once=2.0))
    assert both is not None and both.prescriptions[0].settings == {"prefetch_factor": 16}


def test_a_trial_of_more_workers_is_the_second_run() -> None:
    case = gpu_doctor.case("pass")
    case.recordings.append(LOCKED.recording())
    entry = race.entered(case, {"num_workers": 4})
    entry.bases.append(LOCKED.recording())
    entry.candidates.append(FOUR.but(settings={"num_workers": 4}).recording())
    race.concluded(case, entry, {})
    assert case.diagnosis is not None and case.diagnosis.findings[0].rule == "workers-wait-for-each-other"

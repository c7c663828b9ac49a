"""loader-without-workers: an exposed wait that worker processes would hide."""

from __future__ import annotations

import pytest

from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.rules.prescriptions import SHARD_FIRST, with_workers
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, line, on_gpu

RULE = "loader-without-workers"
SLEEPING = Loop(wait=40.0, fetch_cpu=1.0, consumer_cpu=10.0, cores=2.0)


def test_sick() -> None:
    found = sick(RULE, SLEEPING)
    assert found.kind == "lost" and found.cost_share == pytest.approx(0.8)
    assert "num_workers=0" in found.headline and "80 %" in found.headline
    cure = found.prescriptions[0]
    assert int(cure.settings["num_workers"]) >= 4  # a sleeping dataset is not capped at the cores
    assert cure.predicted_speedup == pytest.approx(4.0, rel=0.15)
    assert top(SLEEPING) == RULE


def test_it_names_the_lines() -> None:
    found = sick(RULE, SLEEPING.but(lines=(line("time.sleep(1e-4)", 0.7, "data_wait"),)))
    assert any("time.sleep(1e-4)" in one for one in found.evidence)


def test_a_loader_that_refuses_workers_is_advised_by_hand() -> None:
    refusing = SLEEPING.but(loader={"refusals": {"num_workers": "the dataset lives in __main__"}})
    cure = sick(RULE, refusing).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand" and "__main__" in cure.text


@pytest.mark.parametrize(
    "loop",
    [
        Loop(),
        Loop(wait=0.4),  # 4 %
        SLEEPING.but(workers=4, wait=0.1, fetch=40.0),
        on_gpu(wait=6.0, gpu_gap=0.1, gpu_work=16.0, loader={}),  # the GPU does not notice
        Loop(wait=0.4, forward=0.2, backward=0.2, optimizer=0.1, batch=128, batch_bytes=1.3e5),  # data in memory
        Loop(wait=40.0, cores=1.0),  # one core that computes
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_the_late_begin_of_epochs_is_not_billed() -> None:
    # A second of shuffling every 100 steps of 14 ms: workers hide the 4 ms of each step, not the second.
    late = Loop(wait=4.0, edge=1000.0, steps=400, steps_per_epoch=100)
    late = late.but(loader={"sampler": "RandomSampler", "dataset_len": 20_000_000})
    assert named(late)[:2] == ["slow-epoch-start", RULE]
    assert sick(RULE, late).cost_share == pytest.approx(399 * 4 / (399 * 14 + 3 * 1000), rel=0.02)


def test_one_worker_of_a_stream_repeats_nothing() -> None:
    stream = {"dataset_kind": "iterable", "refusals": {"num_workers": f"Every worker would repeat it. {SHARD_FIRST}."}}
    loader = Loop(wait=20.0, fetch_cpu=2.0, consumer_cpu=20.0, forward=20.0, cores=2.0, loader=stream).recording().setup
    (setup,) = loader.loaders
    one, two = (with_workers(setup, count, Forecast(1.5, 1.2, 1.9, 0.02, "why")) for count in (1, 2))
    assert one.settings == {"num_workers": 1} and one.safety.value == "safe" and "its own items" not in one.text
    assert not two.settings and "its own items" in two.text

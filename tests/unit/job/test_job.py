"""What the recordings of a job's ranks say side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_doctor.job import Job, load
from gpu_doctor.recording import DeviceSetup, Recording
from tests.support.jobs import STARTED_AT, coupled, rank, saved
from tests.support.recordings import Loop

EVEN = Loop(wait=2.0, steps=60)


def job(folder: Path, ranks: list[Recording]) -> Job:
    found = load(saved(folder, ranks))
    assert isinstance(found, Job)
    return found


def about(found: Job, topic: str) -> list[str]:
    return [one.sentence for one in found.remarks if one.about == topic]


def test_equal_ranks_have_no_straggler(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN, EVEN, EVEN]))
    assert found.waiting.straggler is None and not found.waiting.reason
    assert found.remarks == () and found.world_size == 3
    assert [one.steps for one in found.ranks] == [60, 60, 60]


@pytest.mark.parametrize(
    ("late", "phase"),
    [({"wait": 22.0}, "data_wait"), ({"forward": 24.0}, "forward"), ({"other": 20.0}, "other")],
)
def test_the_rank_whose_own_work_is_longest_is_waited_for(late: dict[str, float], phase: str, tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN, EVEN.but(**late), EVEN])).waiting
    assert (found.straggler, found.phase) == (1, phase)
    assert found.late_s == pytest.approx(0.020, rel=0.05) and found.phase_s == pytest.approx(0.020, rel=0.05)
    assert found.waits_s[0] == pytest.approx(0.020, rel=0.05) and found.waits_s[1] == 0.0
    assert found.late_share == pytest.approx(20 / 32, rel=0.05)


def test_a_forward_that_waits_for_rank_0s_buffers_makes_no_straggler_of_its_rank(tmp_path: Path) -> None:
    layers: dict[str, Any] = {"layers": {"BatchNorm2d": 2}}
    late, others = EVEN.but(wait=22.0), EVEN.but(forward=24.0)  # they wait in their forward, by the same 20 ms
    found = job(tmp_path, [rank(0, 2, late, setup=layers), rank(1, 2, others, setup=layers)]).waiting
    assert (found.straggler, found.phase) == (0, "data_wait") or found.straggler is None
    assert found.waits_s[0] <= 1e-9


def test_ranks_that_are_late_in_turns_are_no_stragglers(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN.but(jitter=0.8, seed=seed) for seed in (1, 2)]))
    assert found.waiting.straggler is None and found.waiting.waiting_share > 0.1
    assert about(found, "waiting")


@pytest.mark.parametrize("wrapper", ["", "DataParallel"])
def test_ranks_that_do_not_train_one_model_wait_for_nobody(wrapper: str, tmp_path: Path) -> None:
    found = job(tmp_path, [rank(i, 2, one, wrapper=wrapper) for i, one in enumerate([EVEN, EVEN.but(wait=30.0)])])
    assert found.waiting.reason and found.waiting.straggler is None and not about(found, "waiting")


def test_a_rank_on_a_gpu_is_judged_by_its_devices_clock_or_not_at_all(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN.but(gpu=True), EVEN.but(gpu=True, wait=30.0)]))
    assert "device clock" in found.waiting.reason


def test_the_device_clock_tells_the_late_rank_of_gpus(tmp_path: Path) -> None:
    def read(one: Recording, own_s: float) -> Recording:
        since, ones = np.full(60, 0.040), np.ones(60)
        clock = {"gpu_since_s": since, "gpu_since_steps": ones, "gpu_backward_s": since - own_s}
        return replace(one, steps=replace(one.steps, **clock))

    ranks = [read(one, own_s) for one, own_s in zip(coupled([EVEN.but(gpu=True)] * 2), (0.010, 0.030), strict=True)]
    found = job(tmp_path, ranks).waiting
    assert found.straggler == 1 and found.late_s == pytest.approx(0.020)


def test_long_runs_whose_rows_stand_for_several_steps_are_put_side_by_side_too(tmp_path: Path) -> None:
    ranks = coupled([EVEN, EVEN.but(wait=22.0)])
    thinned = replace(ranks[1], steps=replace(ranks[1].steps, count=ranks[1].steps.count * 2.0))
    single = coupled([EVEN.but(steps=120), EVEN.but(steps=120, wait=22.0)])[0]
    found = job(tmp_path, [single, thinned]).waiting
    assert not found.reason and found.waits_s.keys() == {0, 1}


LOSSES = [2.0 - 0.05 * i for i in range(20)]


def test_equal_losses_prove_equal_samples(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN, EVEN], losses=LOSSES, sampler="RandomSampler"))
    (said,) = [one for one in found.remarks if one.about == "data"]
    assert "20 steps" in said.sentence and "RandomSampler" in said.sentence and "DistributedSampler" in said.to_do


@pytest.mark.parametrize("losses", [[1.0] * 20, [float("nan")] * 20, LOSSES[:3]])
def test_losses_that_stand_still_or_are_few_prove_nothing(losses: list[float], tmp_path: Path) -> None:
    assert not about(job(tmp_path, coupled([EVEN, EVEN], losses=losses)), "data")


def test_samplers_of_torchs_own_on_every_rank_are_said_with_their_condition(tmp_path: Path) -> None:
    (said,) = about(job(tmp_path, coupled([EVEN, EVEN], sampler="RandomSampler")), "data")
    assert "unless" in said


def test_data_sets_of_other_lengths_were_shared_out(tmp_path: Path) -> None:
    loops = [EVEN.but(loader={"dataset_len": 500}), EVEN.but(loader={"dataset_len": 501})]
    assert not about(job(tmp_path, coupled(loops, sampler="RandomSampler")), "data")


def test_uneven_samples_are_said(tmp_path: Path) -> None:
    (said,) = about(job(tmp_path, coupled([EVEN, EVEN.but(batch=16)])), "data")
    assert "960" in said and "1 920" in said.replace("\u202f", " ").replace("\xa0", " ")


def test_threads_and_workers_of_all_ranks_stand_against_the_cores_of_their_host(tmp_path: Path) -> None:
    busy: dict[str, Any] = {"torch_threads": 4, "usable_cores": 8.0, "os_cores": 8}
    (said,) = about(job(tmp_path, [rank(i, 4, EVEN, setup=busy) for i in range(4)]), "cores")
    assert "16" in said and "8 cores" in said
    apart = [rank(i, 4, EVEN, setup={**busy, "host": f"node-{i}"}) for i in range(4)]
    assert not about(job(tmp_path, apart), "cores")
    bound = [rank(i, 4, EVEN, setup={**busy, "usable_cores": 2.0}) for i in range(4)]
    assert not about(job(tmp_path, bound), "cores")


def test_gpus_that_no_rank_uses_and_that_two_share_are_said(tmp_path: Path) -> None:
    cards = tuple(DeviceSetup(i, "NVIDIA H100", uuid=f"GPU-{i}") for i in range(3))
    ranks = [rank(i, 2, EVEN.but(gpu=True), setup={"devices": cards, "device": "cuda:1"}) for i in range(2)]
    said = " ".join(about(job(tmp_path, ranks), "gpus"))
    assert "2 GPUs" in said and "0 and 1" in said


def test_ranks_that_were_cut_off_or_began_late_are_said(tmp_path: Path) -> None:
    ranks = coupled([EVEN, EVEN, EVEN])
    ranks[1] = replace(ranks[1], outcome="failed", reason="RuntimeError: <b>reset")
    ranks[2] = replace(ranks[2], started_at=STARTED_AT + 0.3)
    found = job(tmp_path, ranks)
    said = " ".join(about(found, "ranks"))
    assert "Rank 1" in said and "<b>reset" in said and "Rank 2" in said
    assert "<b>" not in found._repr_html_().replace("<b>Job", "").replace("<b>Look", "")


def test_a_job_is_plain_data_and_a_table(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN, EVEN.but(wait=22.0)]))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["world_size"] == 2 and data["waiting"]["straggler"] == 1 and len(data["ranks"]) == 2
    assert len(found.rows) == 2 and "evaluation" not in found.rows[0] and "GPU busy" not in found.rows[0]
    assert all(len(line) <= 140 for line in str(found).splitlines())
    assert found.ranks[1].recording().outcome == "completed"


def test_the_phases_of_a_rank_add_up_to_its_step_with_its_waits_for_the_device(tmp_path: Path) -> None:
    found = job(tmp_path, coupled([EVEN.but(sync=5.0), EVEN.but(sync=5.0)]))
    first = found.ranks[0]
    assert sum(took or 0.0 for took in first.phases_s.values()) == pytest.approx(first.step_s)
    assert found.rows[0]["sync"] == "5.00 ms"

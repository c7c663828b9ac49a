"""launch-bound: the queue never fills."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording.setup import InputFacts, ModelFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import PINNED, Loop, on_gpu

RULE = "launch-bound"
SMALL = on_gpu(gpu_util=40.0, caught_up=1.0, tensor_active=0.0, peak_share=0.02)


def test_sick() -> None:
    found = sick(RULE, SMALL)
    assert found.cost_share == pytest.approx(0.75, abs=0.01), "with 4 x the batch a quarter of the launching is left"
    assert "up to 75 %" in found.headline and "NVML utilisation 40 %" in found.evidence[0]
    assert found.prescriptions[0].safety.value == "changes-training"
    assert top(SMALL) == RULE
    # full precision and the small batch are the same symptom: one cause first
    assert named(SMALL) == [RULE]


def test_well() -> None:
    assert asked(RULE, on_gpu()) is None


def test_a_loop_that_waits_for_data_also_empties_its_queue() -> None:
    starving = on_gpu(
        wait=20.0, gpu_gap=20.0, gpu_work=10.0, gpu_util=33.0, caught_up=1.0, workers=4, fetch=120.0, fetch_cpu=10.0
    )
    assert top(starving) == "too-few-workers"
    assert RULE not in named(starving)


def test_waits_do_not_hide_what_launching_takes() -> None:
    """The queue was empty before any of them; while the host waits, the GPU works."""
    assert sick(RULE, SMALL.but(sync=3.0)).cost_share < sick(RULE, SMALL).cost_share
    assert sick(RULE, SMALL.but(sync=90.0)).cost_share == pytest.approx(0.75 * 0.1, rel=0.05)


def test_it_costs_no_more_than_the_host_spends_on_launching() -> None:
    # The host launches for 3 ms of 10, then 7 ms of Python.
    python = SMALL.but(forward=1.0, backward=1.0, optimizer=1.0, other=7.0, gpu_gap=7.0, gpu_work=3.0, gpu_util=20.0)
    assert sick(RULE, python).cost_share == pytest.approx(0.3 * 0.75)
    assert top(python) == "slow-python"


@pytest.mark.parametrize("util", [0.0, None, 20.0, 60.0, 99.0])
def test_what_nvml_reads_is_no_price_and_no_veto(util: float | None) -> None:
    """A reading of 0 % is no idling to bill, none no reason to be silent, and tiny kernels in a row make it 100 %."""
    assert sick(RULE, SMALL.but(gpu_util=util)).cost_share == pytest.approx(0.75, abs=0.01)


def test_only_steps_that_emptied_the_queue_are_priced() -> None:
    found = sick(RULE, SMALL.but(caught_up=0.9))
    assert found.cost_share == pytest.approx(0.9 * 0.75, abs=0.01)


def test_without_the_device_s_clock_it_is_silent() -> None:
    recording = SMALL.recording()
    blind = replace(recording, steps=replace(recording.steps, device_steps=recording.steps.device_steps * 0.0))
    silent = {one.rule: one.reason for one in diagnose(blind).silent}
    assert silent[RULE] == silent["small-batch"] == "the GPU's own clock was not read"


def test_a_full_queue_with_a_low_utilisation_figure() -> None:
    assert asked(RULE, SMALL.but(caught_up=0.1)) is None


def test_a_batch_that_the_knob_cannot_change_is_left_to_the_hand() -> None:
    refusing = {**PINNED, "refusals": {"batch_size": "Your batch_sampler decides the batch size."}}
    cure = sick(RULE, SMALL.but(loader=refusing)).prescriptions[0]
    assert not cure.settings and cure.safety.value == "by-hand"
    assert "decides the batch size" in cure.text and "batch_size=128" in cure.code


def test_a_small_data_set_would_have_no_steps_left() -> None:
    found = sick(RULE, SMALL.but(loader={**PINNED, "dataset_len": 1000}))
    assert ["batch" in one.text for one in found.prescriptions] == [False]
    assert "torch.compile(model)" in found.prescriptions[0].code
    compiled = SMALL.but(setup={"model": ModelFacts(compiled=True)}, loader={**PINNED, "dataset_len": 1000})
    assert "CUDA graphs" in sick(RULE, compiled).prescriptions[0].text


# ---- on a CPU --------------------------------------------------------------------------------------------------------

GRAPH = {"operation_s": 20e-6, "graph_operations": 100}
"""A backward of 2 ms at the least."""
ROWS = InputFacts(looked_at=40, shapes=1, shape=(32, 16), dtype="float32", device="cpu", per_step=1.0)
SETUP = {**GRAPH, "inputs": ROWS, "parameters": 5000}
TINY = Loop(forward=1.2, loss=0.2, backward=2.5, optimizer=0.4, other=0.3, setup=SETUP, loader={"dataset_len": 32000})


def test_a_cpu_that_goes_from_operation_to_operation() -> None:
    found = sick(RULE, TINY)
    share = (2.0 + 0.8 * 1.4) / 4.6
    assert found.headline.startswith(f"The operations are small: about {100 * share:.0f} %")
    assert found.cost_share == pytest.approx(0.75 * share, rel=0.01)
    assert "2.50 ms for 100 operations, 25.0 µs each" in found.evidence[0]
    assert found.evidence[0].endswith("takes 20.0 µs here")
    cure = found.prescriptions[0]
    assert cure.safety.value == "changes-training" and cure.settings == {"batch_size": 128}
    fixed = 4.3 / 4.6
    assert cure.predicted_speedup == pytest.approx(4 / (fixed + 4 * (1 - fixed)) ** 0.5, rel=0.01)
    assert diagnose(TINY.recording()).bottleneck == "host"


@pytest.mark.parametrize(
    "well",
    [
        TINY.but(backward=9.0, forward=4.0),
        TINY.but(wait=2.0),
        TINY.but(setup={}),
        TINY.but(setup={"operation_s": 20e-6}),
        TINY.but(setup={"graph_operations": 100}),
        TINY.but(loader={"dataset_len": 1000}),
        TINY.but(setup={**SETUP, "optimizers": ("Adam", "Adam")}),
        TINY.but(forward=9.0),
    ],
    ids=[
        "computes",
        "waits",
        "nothing known",
        "no graph",
        "no least",
        "no more data",
        "several losses",
        "a frozen part",
    ],
)
def test_a_cpu_that_computes_or_waits(well: Loop) -> None:
    assert asked(RULE, well) is None
    assert diagnose(well.recording()).bottleneck != "host"


def test_a_gain_is_told_only_where_a_larger_batch_has_next_to_no_arithmetic_either() -> None:
    for more in ({"parameters": 500_000}, {"inputs": replace(ROWS, shape=(32, 3, 32, 32))}, {"inputs": None}):
        cure = sick(RULE, TINY.but(setup={**SETUP, **more})).prescriptions[0]
        assert cure.predicted_speedup is None and cure.settings == {"batch_size": 128}


def test_workers_that_are_hardly_faster_than_the_loop_leave_a_larger_batch_little_to_gain() -> None:
    slow, quick = (TINY.but(workers=2, fetch=ms, fetch_cpu=0.5, loader={"dataset_len": 32000}) for ms in (7.0, 0.9))
    assert sick(RULE, slow).cost_share == pytest.approx(1.0 - 3.5 / 4.6, abs=0.01)
    cures = [sick(RULE, one).prescriptions[0].predicted_speedup or 0.0 for one in (slow, quick)]
    assert cures[0] == pytest.approx(4.6 / 3.5, rel=0.01) and cures[1] > 3.0


def test_why_a_cpu_is_not_judged() -> None:
    silent = {one.rule: one.reason for one in diagnose(TINY.but(setup={}).recording()).silent}
    assert "operations are counted of one backward" in silent[RULE]


def test_a_loop_without_a_loader_may_have_all_of_its_data_in_one_batch() -> None:
    assert asked(RULE, TINY.but(has_loader=False)) is None

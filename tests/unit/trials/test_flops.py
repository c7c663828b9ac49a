"""Floating-point operations of a step: counted on real models and compared with what a hand computes; peaks."""

from __future__ import annotations

import dataclasses
import queue
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.vitals.arithmetic import arithmetic_kind
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.diagnosis.words import efficiency, flops
from gpu_doctor.machine.cards import CARDS, peak_flops_per_s, peaks_of
from gpu_doctor.recording import DeviceSetup
from gpu_doctor.recording.setup import Flops
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported
from gpu_doctor.trials.flops import NotCounted, counted, flops_of
from tests.support.recordings import Loop, on_gpu

BATCH, INPUTS, HIDDEN, CLASSES = 16, 32, 64, 10
LINEAR = 2 * BATCH * (INPUTS * HIDDEN + HIDDEN * CLASSES)
"""Both layers' forward: a product of (B, in) with (in, out) takes 2 B in out operations."""
INTO_HIDDEN = 2 * BATCH * HIDDEN * CLASSES
"""Gradient of the second layer's input; the first layer's input wants none."""
STEP = 2 * LINEAR + INTO_HIDDEN


def count_flops(case: gpu_doctor.Case) -> Flops:
    """What a step computes."""
    return counted(case)[0]


def mlp(batches: int = 8, evaluate: bool = False, accumulate: int = 1) -> dict[str, Any]:
    """A namespace with a two-layer model, its data, and a loop to be run in it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    data = TensorDataset(torch.randn(BATCH * batches, INPUTS), torch.randint(CLASSES, (BATCH * batches,)))
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "loader": DataLoader(data, batch_size=BATCH),
        "loss_of": nn.CrossEntropyLoss(),
        "torch": torch,
        "evaluate": evaluate,
        "accumulate": accumulate,
    }


LOOP = """
for number, (x, y) in enumerate(loader):
    loss_of(model(x), y).backward()
    if (number + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
    if evaluate and number == 1:
        with torch.no_grad():
            for _ in range(5):
                model(x)
"""


def test_the_count_of_a_step_is_what_a_hand_computes_and_all_is_put_back() -> None:
    namespace = mlp()
    before = {name: value.clone() for name, value in namespace["model"].state_dict().items()}
    random = torch.get_rng_state()
    case = gpu_doctor.case(LOOP, namespace)
    found = case.flops()
    assert found == Flops(STEP, STEP / BATCH, 3)
    assert all(torch.equal(value, before[name]) for name, value in namespace["model"].state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert case.on_begin is None
    assert case.recordings == [] and case.trials == []


@pytest.mark.parametrize(
    ("before", "options", "steps"),
    [
        pytest.param("", {"batches": 12, "accumulate": 2}, 2, id="several batches in one step count together"),
        pytest.param("", {"evaluate": True}, 1, id="an evaluation in one of the steps is outvoted"),
        pytest.param("model(torch.randn(512, 32))\n", {}, 1, id="what is computed before the loop does not count"),
        pytest.param("model = torch.compile(model, backend='eager')\n", {}, 1, id="a compiled model as it is written"),
    ],
)
def test_a_step_is_counted_whatever_is_around_it(before: str, options: dict[str, Any], steps: int) -> None:
    found = count_flops(gpu_doctor.case(before + LOOP, mlp(**options)))
    assert found.per_step == steps * STEP and found.per_sample == STEP / BATCH


def test_a_convolution_and_its_gradients() -> None:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 8, 3, padding=1)
    optimizer = torch.optim.SGD(convolution.parameters(), lr=0.01)
    images = torch.randn(4, 3, 16, 16)

    def train() -> None:
        for _ in range(8):
            convolution(images).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    forward = 2 * 4 * 8 * 16 * 16 * 3 * 3 * 3
    # Nothing is pulled from a loader here; the input wants no gradient, so there is the forward and the weights'.
    found = count_flops(gpu_doctor.case(train))
    assert found.per_step == 2 * forward
    assert found.per_sample == 2 * forward / 4


PLAIN = """
weight = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(8):
    (weight - 1).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("code", "batches", "says"),
    [
        pytest.param(PLAIN, 8, "no matrix product", id="a loop without products"),
        pytest.param(LOOP, 1, "needs 2", id="a loop of one step"),
        pytest.param("things.append(1)\nraise ValueError('no')", 8, "ValueError: no", id="code that fails"),
    ],
)
def test_what_cannot_be_counted_says_why_and_everything_is_put_back(code: str, batches: int, says: str) -> None:
    namespace = {**mlp(batches), "things": []}
    with pytest.raises(NotCounted, match=says):
        count_flops(gpu_doctor.case(code, namespace))
    assert namespace["things"] == []


def test_the_newest_run_keeps_the_count_and_its_vitals_say_it() -> None:
    case = gpu_doctor.case(LOOP, mlp(batches=20))
    case.run()
    assert case.diagnosis is not None
    assert case.diagnosis.vitals.flops_per_s is None
    case.flops()
    vitals = case.diagnosis.vitals
    assert case.recordings[-1].flops is not None
    assert vitals.flops_per_step == pytest.approx(STEP)
    assert vitals.samples_per_s is not None and vitals.flops_per_s is not None
    assert vitals.flops_per_s == pytest.approx(STEP / BATCH * vitals.samples_per_s, rel=1e-6)
    assert vitals.peak_flops_per_s is None, "a CPU has no peak in the table"
    assert vitals.hfu_share is None


def test_what_a_count_leaves_behind_is_among_the_runs_notes() -> None:
    case = gpu_doctor.case(LOOP, mlp())
    case.run()
    case.namespace["waiting"] = queue.SimpleQueue()
    case.flops()
    notes = case.recordings[-1].notes
    assert [one for one in notes if one.endswith("cannot put back: waiting (SimpleQueue).")]


def test_nothing_is_left_in_torch_after_a_count() -> None:
    count_flops(gpu_doctor.case(LOOP, mlp()))
    assert flops_of([], []) is None
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


# ---- peaks -----------------------------------------------------------------------------------------------------------

# Multiprocessors, boost clock in GHz, dense half-precision operations of one a cycle (NVIDIA's architecture papers).
MADE = {
    "NVIDIA H200": (132, 1.83, 4096),
    "NVIDIA H100 80GB HBM3": (132, 1.83, 4096),
    "NVIDIA H100 PCIe": (114, 1.62, 4096),
    "NVIDIA A100-SXM4-40GB": (108, 1.41, 2048),
    "NVIDIA A100 80GB PCIe": (108, 1.41, 2048),
    "NVIDIA A10": (72, 1.695, 1024),
    "NVIDIA A40": (84, 1.74, 1024),
    "NVIDIA L4": (58, 2.04, 1024),
    "NVIDIA L40S": (142, 2.52, 1024),
    "Tesla T4": (40, 1.59, 1024),
    "Tesla V100-SXM2-16GB": (80, 1.53, 1024),
    "NVIDIA GeForce RTX 3090": (82, 1.695, 512),
    "NVIDIA GeForce RTX 3080": (68, 1.71, 512),
    "NVIDIA GeForce RTX 4090": (128, 2.52, 512),
    "NVIDIA GeForce RTX 4080": (76, 2.505, 512),
    "NVIDIA RTX A6000": (84, 1.80, 1024),
    "NVIDIA TITAN RTX": (72, 1.77, 1024),
    "Tesla P100-PCIE-16GB": (56, 1.303, 128),  # float16 is widened: 256 are with float16 accumulation
}
# TFLOP/s as the vendor's data sheets and papers print them: float32, and half precision, dense, float32 accumulation.
PRINTED = {
    "NVIDIA GeForce RTX 2080 Ti": (13.4, 53.8),
    "NVIDIA GeForce RTX 3070": (20.3, 40.6),
    "NVIDIA GeForce RTX 3090 Ti": (40.0, 80.0),
    "NVIDIA GeForce RTX 4070 Ti": (40.1, 80.2),
    "NVIDIA GeForce RTX 4080 SUPER": (52.2, 104.4),
    "NVIDIA GeForce RTX 5090": (104.8, 209.5),
    "NVIDIA GeForce RTX 5070": (30.9, 61.7),
    "Quadro RTX 6000": (16.3, 130.5),
    "NVIDIA RTX A5000": (27.8, 111.1),
    "NVIDIA RTX A4500": (23.65, 94.6),
    "NVIDIA RTX A4000": (19.2, 76.7),
    "NVIDIA RTX 2000 Ada Generation": (12.0, 48.0),
    "NVIDIA RTX 4000 Ada Generation": (26.7, 106.9),
    "NVIDIA RTX 6000 Ada Generation": (91.1, 364.2),
    "NVIDIA A10G": (35.0, 70.0),
}


@pytest.mark.parametrize("name", MADE)
def test_a_peak_is_what_the_card_is_made_of(name: str) -> None:
    processors, clock_ghz, operations = MADE[name]
    peaks = peaks_of(name)
    assert peaks is not None and peaks.half is not None
    assert peaks.half == pytest.approx(processors * clock_ghz * operations / 1e3, rel=0.03), "sparse, or mistyped"
    assert peaks.half / peaks.float32 >= 1.9 or "P100" in name


@pytest.mark.parametrize("name", PRINTED)
def test_a_computed_peak_is_the_printed_one(name: str) -> None:
    peaks = peaks_of(name)
    assert peaks is not None
    assert (peaks.float32, peaks.half) == pytest.approx(PRINTED[name], rel=0.005)


@pytest.mark.parametrize("pattern", CARDS)
def test_every_card_names_its_source_and_its_peaks_fit_each_other(pattern: str) -> None:
    peaks = CARDS[pattern]
    assert peaks.source
    assert peaks.float64 is not None and peaks.float64 <= peaks.float32
    if peaks.half is None:
        assert peaks.tf32 is None and not peaks.bfloat16
        return
    widened = peaks.half == peaks.float32  # without tensor cores
    assert widened or 1.9 * peaks.float32 <= peaks.half <= 40 * peaks.float32
    assert peaks.tf32 is None or 0.99 * peaks.float32 <= peaks.tf32 <= peaks.half
    assert peaks.tf32 is None or peaks.half / peaks.tf32 == pytest.approx(2.0, rel=0.02), "or one of them is sparse"
    assert (peaks.tf32 is not None) == peaks.bfloat16, "both came with Ampere"


@pytest.mark.parametrize(
    "name",
    [
        *("NVIDIA A100-SXM4-80GB", "Tesla K80", "NVIDIA H100 NVL", "NVIDIA GH200 480GB", "NVIDIA B200"),
        *("NVIDIA TITAN V", "NVIDIA GeForce RTX 3060 Ti", "NVIDIA GeForce RTX 5060"),
    ],
)
def test_a_card_is_found_by_the_name_that_its_driver_gives(name: str) -> None:
    assert peak_flops_per_s(name, "float32") is not None


def test_a_card_with_a_longer_name_is_another() -> None:
    names = ("RTX 4070", "RTX 4070 SUPER", "RTX 4070 Ti", "RTX 4070 Ti SUPER")
    peaks = [peak_flops_per_s(f"NVIDIA GeForce {name}", "float32") or 0.0 for name in names]
    assert peaks == sorted(peaks) and len(set(peaks)) == 4


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA A10-24Q",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA T400",
        "NVIDIA A1000",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3050 Ti",
        "NVIDIA RTX 4000 SFF Ada Generation",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM2e",
        "AMD Instinct MI300X",
        "",
    ],
)
def test_a_card_that_is_not_listed_has_no_peak(name: str) -> None:
    assert peaks_of(name) is None
    assert peak_flops_per_s(name, "float16") is None


def test_a_format_without_units_has_no_peak() -> None:
    assert peak_flops_per_s("Tesla T4", "bfloat16") is None
    assert peak_flops_per_s("Tesla T4", "tf32") is None
    assert peak_flops_per_s("Tesla T4", "float16") == 65e12
    assert peak_flops_per_s("NVIDIA H200", "bfloat16") == pytest.approx(989.4e12)
    assert peak_flops_per_s("NVIDIA H200", "float64") == pytest.approx(66.9e12)
    assert peak_flops_per_s("NVIDIA H200", "int8") is None
    assert peak_flops_per_s("Tesla K80", "float16") is None
    assert peak_flops_per_s("Tesla K80", "float64") == pytest.approx(1.456e12)


# ---- the model's use of the card -------------------------------------------------------------------------------------


def test_the_share_of_the_peak_is_of_the_format_in_use() -> None:
    loop = on_gpu(forward=5.0, backward=5.0, optimizer=0.0, setup={"autocast": "bfloat16"})
    recording = dataclasses.replace(loop.recording(), flops=Flops(32e10, 1e10, 3))
    vitals = measure(recording)
    assert vitals.samples_per_s is not None
    assert vitals.flops_per_step == pytest.approx(32e10)
    assert vitals.hfu_share == pytest.approx(1e10 * vitals.samples_per_s / 989.4e12)
    full = dataclasses.replace(recording, setup=dataclasses.replace(recording.setup, autocast=""))
    assert measure(full).peak_flops_per_s == pytest.approx(66.9e12)


def test_another_batch_size_than_the_counted_one_gives_its_own_count() -> None:
    recording = dataclasses.replace(on_gpu(batch=64).recording(), flops=Flops(32e10, 1e10, 3))
    assert measure(recording).flops_per_step == pytest.approx(64e10)


def test_a_count_without_samples_is_of_the_step() -> None:
    recording = dataclasses.replace(on_gpu().recording(), flops=Flops(5e9, None, 3))
    vitals = measure(recording)
    assert vitals.steps_per_s is not None
    assert vitals.flops_per_s == pytest.approx(5e9 * vitals.steps_per_s)


CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
for x, y in loader:
    hidden = checkpoint(torch.nn.Sequential(model[0], model[1]), x, use_reentrant=reentrant)
    loss_of(model[2](hidden), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_forward_that_checkpointing_repeats_counts_again(reentrant: bool) -> None:
    namespace = {**mlp(), "reentrant": reentrant}
    code = CHECKPOINTED
    if reentrant:  # it takes inputs with a gradient alone
        code = code.replace(", x, use", ", x.requires_grad_(), use")
    found = count_flops(gpu_doctor.case(code, namespace))
    first = 2 * BATCH * INPUTS * HIDDEN
    useful = STEP + (first if reentrant else 0)  # the gradient of an input that wants one
    assert found.per_step == useful + first, "the first layer's forward a second time"


def test_what_was_not_counted_is_none() -> None:
    vitals = measure(on_gpu().recording())
    assert vitals.flops_per_step is None and vitals.flops_per_s is None and vitals.hfu_share is None
    unknown = on_gpu(setup={"devices": (DeviceSetup(0, "A card of tomorrow", "", int(80e9), (12, 0)),)})
    counted = measure(dataclasses.replace(unknown.recording(), flops=Flops(1e10, None, 3)))
    assert counted.flops_per_s is not None and counted.hfu_share is None
    (words,) = efficiency(counted)
    assert words.endswith("; no float32 peak is listed for this card")
    assert measure(dataclasses.replace(Loop().recording(), flops=Flops(1e9, None, 3))).hfu_share is None


def test_the_report_says_what_was_measured_and_nothing_else() -> None:
    loop = on_gpu(setup={"autocast": "bfloat16"})
    plain = loop.recording()
    assert "FLOP/s" not in as_text.text(Reported(diagnose(plain), (plain,)))
    assert "J/sample" not in as_text.text(Reported(diagnose(plain), (plain,)))
    counted = dataclasses.replace(plain, flops=Flops(32e10, 1e10, 3))
    said = as_text.text(Reported(diagnose(counted), (counted,)))
    assert "TFLOP/s" in said
    assert "of the card's dense bfloat16 peak" in said
    assert "FLOP/s" in as_text.html(Reported(diagnose(counted), (counted,)))
    energetic = dataclasses.replace(measure(counted), energy_per_sample_j=0.314)
    assert efficiency(energetic)[1] == "0.314 J/sample"
    on_cpu = Loop().recording()
    on_cpu = dataclasses.replace(on_cpu, flops=Flops(1e9, None, 3))
    (words,) = efficiency(measure(on_cpu))
    assert words.endswith("GFLOP/s")


@pytest.mark.parametrize(
    ("value", "words"), [(4.12e14, "412 TFLOP/s"), (9.5e9, "9.5 GFLOP/s"), (2e15, "2 PFLOP/s"), (5e4, "0.05 MFLOP/s")]
)
def test_arithmetic_in_words(value: float, words: str) -> None:
    assert flops(value) == words


def test_float32_is_tf32_where_products_may_run_so() -> None:
    def kind(**setup: Any) -> str:
        return arithmetic_kind(on_gpu(setup=setup).recording().setup)

    assert kind(flags={"matmul_precision": "highest"}) == "float32"
    assert kind(flags={"matmul_precision": "high"}) == "tf32"
    assert kind(flags={"matmul_precision": "highest"}, layers={"Conv2d": 20, "Linear": 1}) == "tf32"
    turing = (DeviceSetup(0, "Tesla T4", "", int(16e9), (7, 5)),)
    assert kind(flags={"matmul_precision": "high"}, devices=turing) == "float32"
    assert kind(autocast="float16") == "float16"


@pytest.mark.parametrize("per_step", [-1e9, 0.0, float("nan"), float("inf")])
def test_a_count_that_no_trial_gives_is_not_said(per_step: float) -> None:
    recording = dataclasses.replace(Loop().recording(), flops=Flops(per_step, None, 3))
    assert efficiency(measure(recording)) == []

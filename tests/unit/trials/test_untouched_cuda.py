"""Nothing of ours touches CUDA before the user's code does: in a run, in a trial, in the check-up, in any knob."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.machine.cuda import cuda_devices
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.executors.parcel import pack, unpack
from gpu_doctor.trials.knobs import KNOBS
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from tests.support.one_tap import batches, model
from tests.support.simulated_cuda import NAME, NAME_BY_NVML, SimulatedCuda, touching
from tests.support.simulated_device import SimulatedDevice

cloudpickle = pytest.importorskip("cloudpickle")
CELL = """
for x, y in data:
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda(SimulatedDevice(real=True), cards=2) as found:
        yield found


def space() -> dict[str, Any]:
    net = model()
    return {"net": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1), "data": batches(12)}


def watched(begins: Callable[[], None] = lambda: None) -> Setup:
    """What a run has found around a loop on the CPU, before which the cell has called this."""
    with gpu_doctor.watch() as run:
        names = space()
        begins()
        exec(CELL, names)
    assert run.recording is not None
    return run.recording.setup


def test_what_initialises_cuda_is_known() -> None:
    asks = {"is_available", "device_count", "get_device_capability", "get_device_properties", "get_device_name"}
    waits = {"current_device", "current_stream", "synchronize", "get_sync_debug_mode", "set_sync_debug_mode"}
    reads = {"mem_get_info", "is_bf16_supported", "get_rng_state", "reset_peak_memory_stats"}
    assert asks | waits | reads <= touching().keys()
    assert touching().keys().isdisjoint({"is_initialized", "empty_cache", "memory_stats_as_nested_dict", "manual_seed"})


def test_a_run_on_the_cpu_touches_nothing_and_names_the_cards_by_nvml(cuda: SimulatedCuda) -> None:
    found = watched().devices
    assert not cuda.device.touched
    told = [(one.index, one.name, one.uuid, one.capability) for one in found]
    assert told == [(index, NAME_BY_NVML, uuid, (9, 0)) for index, uuid in enumerate(cuda.uuids)]


def test_once_the_cell_has_initialised_it_torch_names_the_cards(cuda: SimulatedCuda) -> None:
    setup = watched(torch.cuda.init)
    assert cuda.device.touched == {"init": 1}, "which the cell has called"
    assert [(one.name, one.uuid) for one in setup.devices] == [(NAME, one) for one in cuda.uuids]
    assert setup.flags["sync_debug"] == "default"


def test_the_cell_still_chooses_its_cards(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    found = watched(lambda: monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")).devices
    assert [one.uuid for one in found] == [cuda.uuids[1]] and not cuda.device.touched


def test_a_driver_too_old_for_torch_gives_no_cards(cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "14.0")
    assert cuda_devices() == () and not cuda.device.touched


def test_a_copy_to_no_device_asks_no_driver_whether_it_was_pinned(
    cuda: SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.Tensor, "is_pinned", asked.append)
    with gpu_doctor.watch():
        torch.ones(4).to("meta")
    assert not asked


def test_the_checkup_touches_nothing(cuda: SimulatedCuda) -> None:
    assert "NVML sees 2 GPUs" in str(gpu_doctor.check()) and not cuda.device.touched


def test_a_trials_copies_touch_nothing(cuda: SimulatedCuda) -> None:
    kept = Snapshot.take(space())
    assert kept.restore() == () and not cuda.device.touched


def test_what_is_sent_to_a_cluster_touches_nothing(cuda: SimulatedCuda) -> None:
    case = gpu_doctor.case(CELL, space())
    case.run()
    parcel = unpack(pack(case, cloudpickle.CloudPickler))
    assert parcel.known_run is None
    parcel.enter()
    assert not cuda.device.touched


@pytest.mark.parametrize("name", KNOBS)
def test_no_knob_touches_it_before_a_run(name: str, cuda: SimulatedCuda) -> None:
    knob, names = KNOBS[name], space()
    setup = Setup(torch_version=torch.__version__, device="cuda:0", devices=cuda_devices(), dtype="float32")
    for one in (Setup(), setup):
        knob.found(one)
        for value in [choice.value for choice in knob.choices(one)]:
            knob.reason(value, one)
            try:
                with knobs.turned({name: value}, TrialScope(names, one)):
                    pass
            except Refused:
                pass
    assert not cuda.device.touched

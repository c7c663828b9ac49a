"""Waits for a GPU, which is simulated, are timed where they happen, and none is added."""

from __future__ import annotations

import io
import operator
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.device_calls import METHODS, tap
from tests.support.iterators import iterator
from tests.support.one_tap import on, standing
from tests.support.simulated_cuda import SimulatedCuda
from tests.support.simulated_device import Noted, SimulatedDevice

SEAMS = (
    *((torch.Tensor, name) for name in METHODS),
    *((owner, "synchronize") for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream)),
)


WORK_MS: Final = 3.0
"""What the device has to do when the loop comes to wait for it."""


CALLS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.item(),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "bool": bool,
    "float": float,
    "int": int,
    "index": lambda x: operator.index(x.long()),
    "if": lambda x: 1 if x > 0 else 2,
    "print": lambda x: print(x, file=io.StringIO()),
    "repr": repr,
    "f-string": lambda x: f"{x}",
    "complex": complex,
    "range": lambda x: list(range(x.long())),
    "equal": lambda x: x.equal(x),
    "allclose": lambda x: x.allclose(x),
    "is_nonzero": lambda x: x.is_nonzero(),
    "argwhere": lambda x: x.argwhere(),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().bincount(),
}


@pytest.fixture(autouse=True)
def cuda() -> Iterator[SimulatedCuda]:
    with SimulatedCuda(SimulatedDevice(exact=True)) as found:
        yield found


@pytest.fixture
def recorder(cuda: SimulatedCuda) -> Recorder:
    """Of a loop that has its first batch; the device has work."""
    found = cuda.device.recorder()
    Noted(found).pull(iterator())
    cuda.launch(WORK_MS, cost_ms=0.0)
    return found


def waits(recorder: Recorder) -> tuple[float, float]:
    """For how many milliseconds the loop has waited for a device, and how often."""
    steps = recorder.close().steps
    assert len(steps) == 1
    return round(steps.sync_s.item() * 1e3, 2), steps.syncs.item()


def test_without_a_device_nothing_is_put_anywhere_and_sync_is_not_measured() -> None:
    before, recorder = standing(*SEAMS), Recorder()
    Noted(recorder).pull()
    with on(tap, recorder, accelerated=False):
        assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))
    assert np.isnan(recorder.close().steps.sync_s).all()


@pytest.mark.parametrize("name", CALLS)
def test_a_wait_is_timed_once(name: str, recorder: Recorder) -> None:
    tensor = torch.ones(1, device="cuda")
    with on(tap, recorder, accelerated=True):
        CALLS[name](tensor)
    assert waits(recorder) == (WORK_MS, 1)


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_in_main_memory_makes_nobody_wait(name: str, recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        plain = torch.ones(1)
        if name not in ("index", "range"):
            CALLS[name](plain)
        assert float(plain) == 1.0
    assert waits(recorder) == (0, 0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_results_are_the_same(device: str, recorder: Recorder) -> None:
    tensor = torch.tensor([3.0], device=device)
    with on(tap, recorder, accelerated=True):
        assert (tensor.item(), float(tensor), int(tensor), bool(tensor), tensor.tolist()) == (3.0, 3.0, 3, True, [3.0])
        assert isinstance(tensor.cpu().numpy(), np.ndarray)
        assert [10, 20][torch.tensor(1)] == 20


def test_synchronize_is_a_wait(cuda: SimulatedCuda, recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        torch.cuda.synchronize()
        cuda.launch(1.0, cost_ms=0.0)
        torch.cuda.synchronize(0)
    assert waits(recorder) == (WORK_MS + 1.0, 2)


@pytest.mark.parametrize("kind", ["event", "stream"])
def test_a_wait_for_an_event_or_a_stream_is_one(kind: str, recorder: Recorder) -> None:
    queue: Any = torch.cuda.current_stream()
    if kind == "event":
        queue = torch.cuda.current_stream().record_event()
    with on(tap, recorder, accelerated=True):
        queue.synchronize()
        other = threading.Thread(target=queue.synchronize)  # is none of the loop's
        other.start()
        other.join()
    queue.synchronize()
    assert waits(recorder) == (WORK_MS, 1)


def test_torch_functions_stay_what_torchscript_knows(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True):
        scripted = torch.jit.script(_scriptable)
    assert scripted(torch.tensor([0, 1])).tolist() == [[1]]


def _scriptable(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x.masked_select(x > -1))


def test_an_error_passes_and_its_wait_counts(recorder: Recorder) -> None:
    with on(tap, recorder, accelerated=True), pytest.raises(RuntimeError):
        torch.ones(2, device="cuda").item()
    assert waits(recorder) == (WORK_MS, 1)


def test_before_the_loop_nothing_is_timed(cuda: SimulatedCuda) -> None:
    recorder = cuda.device.recorder()
    with on(tap, recorder, accelerated=True):
        cuda.launch(WORK_MS)
        torch.ones(1, device="cuda").item()
        Noted(recorder).pull(iterator())
    assert waits(recorder) == (0, 0)


def test_values_that_come_to_the_host_are_counted_as_copies(recorder: Recorder) -> None:
    tensor = torch.ones(3, device="cuda")
    with on(tap, recorder, accelerated=True):
        tensor.cpu()
        tensor.tolist()
        tensor.sum().item()  # one number: a wait, no traffic
    recorder.fold()
    traffic = recorder.so_far().traffic
    assert traffic is not None
    assert (traffic.to_host, traffic.to_host_bytes) == (2, 24)

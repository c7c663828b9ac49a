"""Waits for a device are timed where they happen, and none is added. GPU: a tensor that says it is there stands in."""

from __future__ import annotations

import io
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Source
from gpu_doctor.capture.taps import transfer
from gpu_doctor.capture.taps.sync import METHODS, tap
from tests.support.one_tap import Ticking, on, standing
from tests.support.simulated_device import Noted

SEAMS = (
    *((torch.Tensor, name) for name in METHODS),
    *((owner, "synchronize") for owner in (torch.cuda, torch.cuda.Event, torch.cuda.Stream)),
)


class Elsewhere(torch.Tensor):
    """A tensor in main memory that says it is on a device."""

    device = torch.device("meta")  # type: ignore[assignment]


CALLS: dict[str, Callable[[Any], Any]] = {
    "item": lambda x: x.item(),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "bool": bool,
    "float": float,
    "int": int,
    "index": lambda x: operator.index(x.as_subclass(Elsewhere).long().as_subclass(Elsewhere)),
    "if": lambda x: 1 if x > 0 else 2,
    "print": lambda x: print(x, file=io.StringIO()),
    "repr": repr,
    "f-string": lambda x: f"{x}",
    "complex": complex,
    "range": lambda x: list(range(x.as_subclass(Elsewhere).long().as_subclass(Elsewhere))),
    "equal": lambda x: x.equal(x),
    "allclose": lambda x: x.allclose(x),
    "is_nonzero": lambda x: x.is_nonzero(),
    "argwhere": lambda x: x.argwhere(),
    "unique": lambda x: x.unique(),
    "unique_consecutive": lambda x: x.unique_consecutive(),
    "bincount": lambda x: x.long().bincount(),
}


def begun() -> Recorder:
    """A recorder of a loop that has its first batch, on a clock that ticks when read."""
    recorder = Recorder(clock=Ticking())
    Noted(recorder).pull(Source())
    return recorder


def waits(recorder: Recorder) -> tuple[int, float]:
    """For how many ns the loop has waited for a device, and how often."""
    steps = recorder.close().steps
    assert len(steps) == 1
    return round(steps.sync_s.item() * 1e9), steps.syncs.item()


def test_without_a_device_nothing_is_put_anywhere_and_sync_is_not_measured() -> None:
    before, recorder = standing(*SEAMS), begun()
    with on(tap, recorder, accelerated=False):
        assert all(now is then for now, then in zip(standing(*SEAMS), before, strict=True))
    assert np.isnan(recorder.close().steps.sync_s).all()


@pytest.mark.parametrize("name", CALLS)
def test_a_wait_is_timed_once(name: str) -> None:
    recorder = begun()
    tensor = torch.ones(1).as_subclass(Elsewhere)
    with on(tap, recorder, accelerated=True):
        CALLS[name](tensor)
    assert waits(recorder) == (1000, 1)


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_in_main_memory_makes_nobody_wait(name: str) -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        plain = torch.ones(1)
        if name not in ("index", "range"):
            CALLS[name](plain)
        assert float(plain) == 1.0
    assert waits(recorder) == (0, 0)


def test_results_are_the_same() -> None:
    tensor = torch.tensor([3.0])
    with on(tap, begun(), accelerated=True):
        assert (tensor.item(), float(tensor), int(tensor), bool(tensor), tensor.tolist()) == (3.0, 3.0, 3, True, [3.0])
        assert isinstance(tensor.numpy(), np.ndarray)
        assert [10, 20][torch.tensor(1)] == 20


def test_synchronize_is_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *args: called.append(args))
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        torch.cuda.synchronize()
        torch.cuda.synchronize(0)
    assert called == [(), (0,)]
    assert waits(recorder) == (2000, 2)


@pytest.mark.parametrize("kind", ["Event", "Stream"])
def test_a_wait_for_an_event_or_a_stream_is_one(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Queue:
        waited = 0

        def synchronize(self) -> None:
            Queue.waited += 1

    monkeypatch.setattr(torch.cuda, kind, Queue)
    recorder = begun()
    with on(tap, recorder, accelerated=True):
        Queue().synchronize()
        other = threading.Thread(target=Queue().synchronize)  # is none of the loop's
        other.start()
        other.join()
    Queue().synchronize()
    assert Queue.waited == 3
    assert waits(recorder) == (1000, 1)


def test_torch_functions_stay_what_torchscript_knows() -> None:
    with on(tap, begun(), accelerated=True):
        scripted = torch.jit.script(_scriptable)
    assert scripted(torch.tensor([0, 1])).tolist() == [[1]]


def _scriptable(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x.masked_select(x > -1))


def test_an_error_passes_and_its_wait_counts() -> None:
    recorder = begun()
    with on(tap, recorder, accelerated=True), pytest.raises(RuntimeError):
        torch.ones(2, device="meta").item()
    assert waits(recorder) == (1000, 1)


def test_before_the_loop_nothing_is_timed() -> None:
    recorder = Recorder(clock=Ticking())
    with on(tap, recorder, accelerated=True):
        torch.ones(1).as_subclass(Elsewhere).item()
        Noted(recorder).pull(Source())
    assert waits(recorder) == (0, 0)


def test_values_that_come_to_the_host_are_counted_as_copies() -> None:
    recorder = begun()
    tensor = torch.ones(3).as_subclass(Elsewhere)
    with on(transfer.tap, recorder, accelerated=True) as scope:  # which counts them
        tap(scope)
        tensor.cpu()
        tensor.tolist()
        tensor.numpy()
        tensor.sum().as_subclass(Elsewhere).item()  # one number: a wait, no traffic
    recorder.fold()
    traffic = recorder.so_far().traffic
    assert traffic is not None
    assert (traffic.to_host, traffic.to_host_bytes) == (3, 36)

"""Taps change nothing: numbers, random states, exceptions and torch's registries are as if nobody had listened."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture import patching
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import TAPS, listening
from tests.support.cells import FAULTY
from tests.support.faults import Injector, bare, one_thread, watched


@pytest.mark.parametrize("name", [name for name in FAULTY if "Lightning" not in name and "spawned" not in name])
def test_training_is_bit_identical(name: str) -> None:
    """Weights, losses, calls of the user's functions and the state of every generator are as without us."""
    with one_thread():
        plain, watched_ = bare(FAULTY[name]), watched(FAULTY[name], Injector())
    assert watched_.error is None and watched_.recorded and watched_.left == []
    assert watched_.differences(plain) == []


def registries() -> list[Any]:
    """torch's global registries of hooks."""
    from torch.nn.modules import module
    from torch.optim import optimizer

    names = [name for name in vars(module) if name.startswith("_global_") and name.endswith("_hooks")]
    return [
        *(getattr(module, name) for name in names),
        optimizer._global_optimizer_pre_hooks,
        optimizer._global_optimizer_post_hooks,
    ]


@pytest.mark.parametrize("accelerated", [False, True])
def test_nothing_is_left_behind(accelerated: bool) -> None:
    with listening(Recorder(), {}, accelerated=accelerated):
        assert patching.active() != ()
    assert patching.active() == ()
    assert all(len(registry) == 0 for registry in registries())


def fail_in_loop(x: torch.Tensor) -> None:
    """Where the user's code raises."""
    raise ZeroDivisionError("user's own")


def test_the_users_exception_passes_with_its_own_traceback() -> None:
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    recorder = Recorder()

    def loop() -> None:
        for (x,) in DataLoader(TensorDataset(torch.rand(40, 4)), batch_size=8):
            net(x).sum().backward()
            optimizer.step()
            recorder.fold()
            if recorder.step_count == 2:
                fail_in_loop(x)

    with pytest.raises(ZeroDivisionError, match="user's own") as caught, listening(recorder, {"net": net}):
        loop()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames == ["test_the_users_exception_passes_with_its_own_traceback", "loop", "fail_in_loop"]
    assert caught.value.__context__ is None
    assert len(recorder.close("failed").steps) == 3
    assert patching.active() == ()


def test_an_exception_inside_the_model_shows_the_models_line() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fail_in_loop(x)
            return x

    net = Net()
    net.weight = nn.Parameter(torch.zeros(1))
    with pytest.raises(ZeroDivisionError) as caught, listening(Recorder(), {"net": net}):
        net(torch.rand(2))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["forward", "fail_in_loop"]
    assert not [f for f in traceback.extract_tb(caught.value.__traceback__) if "/gpu_doctor/" in f.filename]


def test_a_tap_that_cannot_be_set_stays_off_and_the_others_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_doctor.capture.taps as shelf

    def broken(scope: Any) -> Any:
        raise RuntimeError("seam is gone")

    monkeypatch.setattr(shelf, "TAPS", (("broken", broken), *TAPS))
    recorder = Recorder()
    with listening(recorder, {}):
        list(DataLoader(TensorDataset(torch.rand(16, 4)), batch_size=8))
    recording = recorder.close()
    assert recording.notes == ("The broken tap could not be installed: seam is gone",)
    assert len(recording.steps) == 2


def test_one_run_after_the_other_starts_afresh() -> None:
    for _ in range(2):
        recorder = Recorder()
        with listening(recorder, {}):
            list(DataLoader(TensorDataset(torch.rand(16, 4)), batch_size=8))
        recording = recorder.close()
        assert len(recording.steps) == 2
        assert len(recording.setup.loaders) == 1


def test_one_run_inside_another_leaves_both_right() -> None:
    outer, inner = Recorder(), Recorder()
    loader = DataLoader(TensorDataset(torch.rand(16, 4)), batch_size=8)
    with listening(outer, {}):
        list(loader)
        with listening(inner, {}):
            list(loader)
        list(loader)
    assert len(inner.close().steps) == 2
    assert len(outer.close().steps) == 6

"""One tap on its own, on a recorder whose clock can be virtual; or all taps on a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import listening
from gpu_doctor.capture.taps.tap import Tap, TapScope
from gpu_doctor.recording import Setup


class Ticking:
    """A clock on which a microsecond passes whenever it is read."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1000
        return self.ns


@contextmanager
def on(
    tap: Tap,
    recorder: Recorder | None = None,
    namespace: MutableMapping[str, Any] | None = None,
    accelerated: bool = False,
) -> Iterator[TapScope]:
    """The tap listens inside the context, on a recorder whose loop has begun."""
    recorder = recorder or Recorder(clock=Ticking())
    with Patches() as patches:
        scope = TapScope(recorder, patches, namespace, accelerated)
        with scope.ends:
            tap(scope)
            yield scope


def batches(n: int = 20, **options: Any) -> DataLoader[Any]:
    """A loader of `n` samples of 4 features, by 8."""
    return DataLoader(TensorDataset(torch.rand(n, 4), torch.zeros(n)), **{"batch_size": 8, **options})


def model() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))


def standing(*places: tuple[Any, str]) -> list[Any]:
    """What stands on the attributes now."""
    return [vars(owner).get(name) for owner, name in places]


def run(loop: Callable[..., None], **namespace: Any) -> Setup:
    """What all taps together find in a loop, which gets the names of its namespace as arguments."""
    recorder = Recorder()
    with listening(recorder, namespace, accelerated=False):
        loop(**namespace)
    recording = recorder.close()
    told = [one for one in recording.notes if not one.startswith("Recording takes")]  # of a machine that is busy
    assert not told, told
    return recording.setup


def sgd(*nets: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for net in nets for p in net.parameters()], lr=0.01)

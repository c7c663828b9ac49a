"""Copies, pickles and replicas of a module that is listened to run themselves, whichever way they are made."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.taps.backward import tap
from gpu_doctor.capture.taps.forward import SEAM
from tests.support.one_tap import on


class Copied(nn.Module):
    """Copies its dict, as many models' own recipe does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name, value in vars(self).items():
            vars(new)[name] = copy.deepcopy(value, memo)
        return new


class Pickled(nn.Module):
    """Leaves a cache out of what is pickled and copied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        self.cache: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "cache"}


def saved(module: nn.Module) -> Any:
    """What a file gives back."""
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


WAYS = {
    "own deepcopy": (Copied, copy.deepcopy),
    "own state": (Pickled, copy.deepcopy),
    "pickle": (Pickled, lambda one: pickle.loads(pickle.dumps(one))),
    "file": (Pickled, saved),
    "replica": (Copied, lambda one: one._replicate_for_data_parallel()),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_runs_itself(way: str) -> None:
    kind, copied = WAYS[way]
    make: Callable[[Any], Any] = copied
    net, x = kind(), torch.ones(1, 2)
    with on(tap, namespace={"net": net}, accelerated=True):
        assert SEAM in vars(net)
        twin = make(net)
        weight = torch.tensor([[3.0, 4.0]])
        with torch.no_grad():
            if way == "replica":  # it has its parameters of torch's broadcast; here a child of its own
                twin._modules = {"layer": lambda x: x @ weight.T}
            else:
                twin.layer.weight.copy_(weight)
        assert twin(x).item() == 7.0
        assert net(x).item() != 7.0


def test_a_replica_of_a_compiled_module_keeps_its_compiled_call() -> None:
    net = nn.Linear(2, 1)
    net._compiled_call_impl = lambda x: x + 1.0
    with on(tap, namespace={"net": net}, accelerated=True):
        replica: Any = net._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        assert replica(torch.zeros(1)).item() == 1.0

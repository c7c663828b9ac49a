"""Which names hold plain values: asked of the model's objects, and of the globals of their classes' functions."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.describe.plain_values import plain_names

TEXT = """
class Net(nn.Module):
    sizes = (8, 16)
    tensor = torch.zeros(2)
    def __init__(self):
        super().__init__()
        self.width, self.names, self.device_ = 4, ["a", "b"], torch.device("cpu")
        self.config, self.space, self.mixed = Config(3), types.SimpleNamespace(n=1), [1, torch.zeros(1)]
        self.shared = self.deep = 1
        self.body = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("later", None)
    def forward(self, x):
        return self.body(x)
    @property
    def asked(self):
        raise AssertionError("nobody may ask")
SIZE, device, dtype, anchors = 32, "cpu", torch.float32, torch.zeros(3)
data = list(range(1000))
net = Net()
"""


@dataclasses.dataclass
class Config:
    n: int


def names() -> dict[str, Any]:
    space: dict[str, Any] = {"nn": nn, "torch": torch, "types": types, "Config": Config, "__name__": "__main__"}
    exec(compile(TEXT, "<a cell>", "exec"), space)
    return space


def test_plain_values() -> None:
    found = plain_names([names()["net"]])
    assert found >= {"self.sizes", "self.width", "self.names", "self.device_", "self.config", "self.space"}
    assert found >= {"SIZE", "device", "dtype"}
    others = {"tensor", "mixed", "body", "scale", "mean", "later", "forward", "asked", "training", "_modules"}
    assert not found & {f"self.{one}" for one in others}
    assert not found & {"anchors", "net", "torch", "Config", "Net"} and "data" not in found, "data are no size"


def test_a_name_that_is_something_else_in_another_module_is_none() -> None:
    space = names()
    other = space["Net"]()
    other.shared = nn.Linear(2, 2)
    assert "self.shared" in plain_names([space["net"]])
    assert "self.shared" not in plain_names([nn.Sequential(space["net"], other)])


def test_modules_of_libraries_are_not_asked() -> None:
    assert plain_names([nn.Sequential(nn.Linear(2, 2))]) == frozenset()

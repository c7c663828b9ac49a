"""Modules whose `forward` is called past torch's own call are heard all the same, and their classes are given back."""

from __future__ import annotations

import torch
from torch import nn

import gpu_doctor
from gpu_doctor.recording import Recording


class Layer(nn.Linear):
    """Its `forward` is called by its name, as in the forward-forward example."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.mm(x, self.weight.T))


class Process(nn.Module):
    """A class with a call of its own, as gpytorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.layer.weight)


def trained(model: nn.Module, by_name: bool) -> Recording:
    """Twenty steps."""

    def loop() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            x = torch.rand(64, 4)
            (model.forward(x) if by_name else model(x)).sum().backward()
            optimizer.step()

    return gpu_doctor.case(loop, {"model": model}).run()


def test_a_forward_called_by_its_name_is_heard() -> None:
    before = Layer.forward
    steps = trained(Layer(4, 2), by_name=True).steps
    assert steps.count.sum() == 20
    assert (steps.forward_s[5:] > 0).all()
    assert Layer.forward is before


def test_a_class_with_a_call_of_its_own_is_heard() -> None:
    before = Process.forward
    recording = trained(Process(), by_name=False)
    assert (recording.steps.forward_s[5:] > 0).all()
    assert Process.forward is before
    assert not recording.notes


def test_a_layer_whose_weight_alone_is_used_is_left_as_it_is() -> None:
    before, embedding = nn.Embedding.forward, nn.Embedding(8, 2)

    def loop() -> None:
        optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
        for _ in range(20):
            assert nn.Embedding.forward is before
            embedding.weight.sum().backward()
            optimizer.step()

    steps = gpu_doctor.case(loop, {"embedding": embedding}).run().steps
    assert steps.count.sum() == 20
    assert not steps.forward_s.any()

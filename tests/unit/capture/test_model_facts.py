"""The make of models and optimizers in plain values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from gpu_doctor.capture.describe.model_facts import channels_last, model_facts, optimizer_facts


def convolutional() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1), nn.Conv3d(16, 16, 3), nn.Conv1d(16, 16, 3))


def test_bytes_by_device_and_dtype() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False, dtype=torch.bfloat16))
    found = model_facts([net, net[0]])
    assert found.device_bytes == {"cpu": 4 * 72 + 2 * 64}
    assert found.dtype_bytes == {"float32": 288, "bfloat16": 128}
    assert not found.compiled and found.wrapper == ""


def test_parts_on_another_device_are_told() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8, bias=False, device="meta"))
    assert model_facts([net]).device_bytes == {"cpu": 288, "meta": 256}


def test_convolutions_and_their_layout() -> None:
    net = convolutional()
    found = model_facts([net])
    assert (found.convolutions, found.channels_last) == (2, 0), "the layout is for 2D ones alone"
    found = model_facts([net[:2].to(memory_format=torch.channels_last)])  # type: ignore[index]
    assert (found.convolutions, found.channels_last) == (2, 2)


@pytest.mark.parametrize(
    ("shape", "kind"), [((8, 4, 3, 3), torch.channels_last), ((8, 4, 3, 3, 3), torch.channels_last_3d)]
)
def test_channels_last_is_told_by_strides(shape: tuple[int, ...], kind: Any) -> None:
    assert not channels_last(torch.rand(shape))
    assert channels_last(torch.rand(shape).to(memory_format=kind))
    assert not channels_last(torch.rand(8, 4)) and not channels_last(None)


def test_wrappers_are_told() -> None:
    assert model_facts([nn.DataParallel(nn.Linear(8, 8))]).wrapper == "DataParallel"


def test_tables_with_dense_gradients_largest_first() -> None:
    net = nn.ModuleDict(
        {
            "words": nn.Embedding(100, 8),
            "users": nn.EmbeddingBag(1000, 8),
            "sparse": nn.Embedding(5000, 8, sparse=True),
            "frozen": nn.Embedding.from_pretrained(torch.zeros(9000, 8)),
            "tied": nn.Embedding(7000, 8),
            "head": nn.Linear(8, 7000, bias=False),
        }
    )
    net["head"].weight = net["tied"].weight
    found = model_facts([net])
    assert found.tables == ("users: EmbeddingBag 1000 x 8", "words: Embedding 100 x 8")
    assert found.table_elements == 8800


def test_lazy_parameters_count_as_nothing() -> None:
    found = model_facts([nn.Sequential(nn.LazyConv2d(8, 3), nn.Linear(8, 8))])
    assert found.dtype_bytes == {"float32": 288} and found.channels_last == 0


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_optimizers_that_can_be_fused(kind: str) -> None:
    net = nn.Linear(8, 8)
    found = optimizer_facts(getattr(torch.optim, kind)(net.parameters(), lr=0.1))
    assert (found.name, found.tensors, found.elements) == (kind, 2, 72)
    assert (found.foreach, found.fused, found.can_fuse) == (None, None, True)
    assert optimizer_facts(getattr(torch.optim, kind)(net.parameters(), lr=0.1, fused=True)).fused is True


def test_optimizers_that_cannot() -> None:
    parameters = list(nn.Linear(8, 8).parameters())
    assert not optimizer_facts(torch.optim.RMSprop(parameters)).can_fuse
    assert not optimizer_facts(torch.optim.Adam(parameters, differentiable=True)).can_fuse
    assert not optimizer_facts(torch.optim.Adam(nn.Linear(8, 8, device="meta").parameters())).can_fuse


def test_groups_that_differ_say_nothing() -> None:
    one, two = nn.Linear(8, 8), nn.Linear(8, 8)
    groups: list[dict[str, Any]] = [{"params": one.parameters(), "foreach": False}, {"params": two.parameters()}]
    found = optimizer_facts(torch.optim.SGD(groups, lr=0.1))
    assert found.foreach is None and found.groups == 2
    assert optimizer_facts(torch.optim.SGD(one.parameters(), lr=0.1, foreach=False)).foreach is False


def test_compiled_models_and_steps_are_told() -> None:
    net = nn.Linear(8, 8)
    assert model_facts([torch.compile(net, backend="eager")]).compiled  # type: ignore[list-item]
    step = torch.compile(lambda x: net(x), backend="eager")
    assert model_facts([net], {"step": step}).compiled and not model_facts([net], {"net": net}).compiled
    net.compile(backend="eager")
    assert model_facts([net]).compiled

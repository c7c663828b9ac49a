"""How many samples and bytes a batch holds, whatever it comes in."""

from __future__ import annotations

import math
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gpu_doctor.capture.describe.batches import byte_count, holds_several, sample_count, tensors_in

X, Y = torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64)
Both = namedtuple("Both", "x y")  # the form that libraries use


@dataclass
class Pair:
    """A batch as a dataclass."""

    x: Any
    y: Any


@dataclass(slots=True)
class Slotted:
    """A batch as a dataclass without a `__dict__`."""

    x: Any
    y: Any


class Graphs:
    """A batch of graphs: its tensors hold nodes, not samples."""

    def __init__(self) -> None:
        self.num_graphs, self.x = 3, torch.zeros(50, 4)


class Text(UserDict):  # type: ignore[type-arg]
    """A batch as tokenizers make it."""


HOLDING = {
    "tensor": X,
    "list": [X, Y],
    "tuple": (X, Y),
    "named tuple": Both(X, Y),
    "dict": {"x": X, "y": Y},
    "user dict": Text(x=X, y=Y),
    "dataclass": Pair(X, Y),
    "slotted dataclass": Slotted(X, Y),
    "nested": {"inputs": [{"deep": X}], "name": "a", "y": Y},
    "strings first": ["a", "b", (X, Y)],
    "none and numbers": [None, 3, 2.5, {"x": X, "y": Y}],
}


@pytest.mark.parametrize("name", HOLDING)
def test_samples_and_bytes_of_containers(name: str) -> None:
    batch = HOLDING[name]
    assert sample_count(batch) == 6
    assert byte_count(batch) == (X.nbytes if name == "tensor" else X.nbytes + Y.nbytes)


def test_objects_that_know_their_size_are_asked() -> None:
    assert sample_count(Graphs()) == 3
    assert byte_count(Graphs()) == 50 * 4 * 4


def test_a_scalar_is_one_sample_and_scalars_in_front_are_passed_over() -> None:
    assert sample_count(torch.tensor(1.0)) == 1
    assert sample_count({"step": torch.tensor(1.0), "x": X}) == 6


@pytest.mark.parametrize("batch", [None, 3, "text", [], {}, ["a", "b"], object()])
def test_without_a_tensor_nothing_is_claimed(batch: Any) -> None:
    assert math.isnan(sample_count(batch))
    assert math.isnan(byte_count(batch))


def test_a_nest_without_an_end_is_left_in_time() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert list(tensors_in(loop)) == []


def test_an_empty_batch_has_no_samples() -> None:
    assert sample_count(torch.zeros(0, 4)) == 0


def test_a_view_counts_its_own_bytes_alone() -> None:
    assert byte_count(torch.zeros(100, 4)[:6]) == X.nbytes


def test_a_tensor_that_needs_gradients_is_only_looked_at() -> None:
    weight = torch.zeros(6, 4, requires_grad=True)
    assert sample_count(weight) == 6
    assert weight.grad is None


CROPS = {"image": torch.zeros(8, 1, 16, 16), "label": torch.zeros(8), "affine": torch.zeros(8, 2, 2), "name": ["a"] * 8}


@pytest.mark.parametrize(
    ("batch", "items", "several"),
    [
        (CROPS, 2, True),
        (CROPS, 1, True),
        (CROPS, 4, True),
        (CROPS, 8, False),
        (CROPS, 3, False),
        ([torch.zeros(8, 1, 16, 16), torch.zeros(2)], 2, False),
        ([torch.zeros(64, 2, 9), torch.zeros(64, 2)], 2, False),
        ([torch.zeros(64, 9), torch.zeros(64)], 2, False),
        ([torch.zeros(30, 64, 64), torch.zeros(30, 64, 64)], 1, False),
        ([torch.zeros(3, 64, 64, 64), torch.tensor(1)], 1, False),
        (["a", 3], 2, False),
    ],
    ids=["crops", "of one", "of four", "one each", "no multiple", "views", "time", "tokens", "slices", "bare", "none"],
)
def test_items_of_several_samples_each(batch: Any, items: int, several: bool) -> None:
    assert holds_several(batch, items) is several

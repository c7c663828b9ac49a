"""Batches, models, losses and loaders that cannot be read as usual: the loop runs as it does without us."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture.events import CAME, COPIED
from gpu_doctor.capture.found import Place
from gpu_doctor.capture.taps.traffic import CopyBook, copied_to_device, copied_to_host

STEPS = 5


class Padded(nn.Module):
    """Takes nested tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.nested.to_padded_tensor(x, 0.0))  # type: ignore[no-any-return]


class Weight(nn.Module):
    """A leaf that can be scripted."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Batch:
    """A batch that looks its attributes up in a mapping."""

    def __init__(self, **given: Any) -> None:
        vars(self)["given"] = given

    def __getattr__(self, name: str) -> Any:
        return vars(self)["given"][name]


class Stream(IterableDataset[int]):
    """Twenty numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(20))


class Equal(DataLoader[Any]):
    """A loader that compares, and with that has no hash."""

    def __eq__(self, other: object) -> bool:
        return self is other


def nested(layout: torch.layout = torch.strided) -> torch.Tensor:
    """Two sequences."""
    return torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)], layout=layout)


def pads_jagged() -> bool:
    """Whether `Padded` can take them."""
    try:
        torch.nested.to_padded_tensor(nested(torch.jagged), 0.0)
    except NotImplementedError:
        return False
    return True


def trained(model: nn.Module, batches: Iterable[Any]) -> None:
    """As many steps as there are batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()


def complex_loss() -> None:
    """A loss that is no real number."""
    weight = torch.rand(3, dtype=torch.cfloat, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(weight.sum(), torch.tensor(1 + 0j))
        optimizer.step()


def of_class() -> None:
    """Batches of a class of the user's own, from a stream."""
    loader = DataLoader(Stream(), batch_size=4, collate_fn=lambda xs: Batch(x=torch.rand(len(xs), 4)))
    trained(nn.Linear(4, 1), (batch.x for batch in loader))


LOOPS: dict[str, Callable[[], None]] = {
    "nested": lambda: trained(Padded(), [nested() for _ in range(STEPS)]),
    "jagged": lambda: trained(Padded(), [nested(torch.jagged) for _ in range(STEPS)]),
    "nested batches": lambda: trained(Padded(), DataLoader(Stream(), batch_size=4, collate_fn=lambda _: nested())),
    "scripted layer": lambda: trained(
        nn.Sequential(torch.jit.script(Weight()), nn.Linear(4, 2)), [torch.rand(3, 4) for _ in range(STEPS)]
    ),
    "complex loss": complex_loss,
    "batches of a class": of_class,
    "loader that compares": lambda: trained(
        nn.Linear(4, 1), (x for (x,) in Equal(TensorDataset(torch.rand(20, 4)), batch_size=4))
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_it_trains_under_observation(loop: str) -> None:
    if loop == "jagged" and not pads_jagged():
        pytest.skip("this torch cannot pad a jagged tensor")
    with gpu_doctor.watch() as run:
        LOOPS[loop]()
    assert run.recording is not None
    assert run.recording.steps.count.sum() == STEPS


def test_samples_of_a_nested_batch_are_counted() -> None:
    with gpu_doctor.watch() as run:
        LOOPS["nested batches"]()
    assert run.recording is not None
    assert run.recording.steps.samples.tolist() == [2.0] * STEPS


def test_a_copied_nested_tensor_is_counted_and_no_round_trip() -> None:
    book, given, other, place = CopyBook(), nested(), nested(), Place(0, 0, 0)
    book.count(CAME, 0, copied_to_host(given, other), place)
    book._shapes = {torch.Size([1]): 2}
    book.count(COPIED, 0, (0, True, copied_to_device(given, False, True)), place)
    assert (book.to_host, book.to_device, book.round_trips) == (1, 1, 0)

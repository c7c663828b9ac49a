"""Rows compared in one large tensor, in the graph of a backward: found however they are spread, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gpu_doctor.capture.describe import broadcast_pairs
from gpu_doctor.capture.describe.broadcast_pairs import FEWEST, pairs_by_broadcast
from gpu_doctor.capture.describe.nodes import behind
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import backward
from gpu_doctor.recording.setup import PairsByBroadcast
from tests.support.one_tap import on
from tests.support.told_loop import begun

A = torch.rand(4, 6, requires_grad=True)
B = torch.rand(5, 6, requires_grad=True)
BANK = torch.rand(5, 6)
ROWS, COLUMNS, STORED = A[:, None], B[None], BANK[None]
SETS = torch.rand(3, 4, 6, requires_grad=True)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such small tensors count, too."""
    monkeypatch.setattr(broadcast_pairs, "FEWEST", 1)


def seen(result: Tensor) -> PairsByBroadcast | None:
    return pairs_by_broadcast(behind(result.sum(), 1000)[0])


PAIRS: tuple[tuple[Callable[[], Tensor], str], ...] = (
    (lambda: (ROWS * COLUMNS).sum(-1), "product"),
    (lambda: (ROWS.expand(4, 5, 6) * COLUMNS.expand(4, 5, 6)).sum(2, keepdim=True), "product"),
    (lambda: (ROWS.repeat(1, 5, 1) * B.repeat(4, 1, 1)).mean(-1), "product"),
    (lambda: (functional.normalize(A)[:, None] * functional.normalize(B)).sum(-1), "product"),
    (lambda: functional.cosine_similarity(ROWS, COLUMNS, dim=-1), "cosine"),
    (lambda: ((ROWS - COLUMNS) ** 2).sum(-1), "squares"),
    (lambda: (ROWS - COLUMNS).square().mean(-1).sqrt(), "squares"),
    (lambda: (ROWS - COLUMNS).norm(dim=-1), "norm"),
    (lambda: torch.linalg.vector_norm(ROWS - COLUMNS, dim=-1), "norm"),
    (lambda: functional.pairwise_distance(ROWS, COLUMNS), "norm"),
)


@pytest.mark.parametrize(("result", "kind"), PAIRS)
def test_pairs(result: Callable[[], Tensor], kind: str) -> None:
    assert seen(result()) == PairsByBroadcast(kind, 1, 1, 4, 5, 6, "float32", 2)


def test_a_difference_times_itself() -> None:
    apart = ROWS - COLUMNS
    assert seen((apart * apart).sum(-1)) == PairsByBroadcast("squares", 1, 1, 4, 5, 6, "float32", 2)


def test_one_side_without_a_gradient() -> None:
    assert seen((ROWS * STORED).sum(-1)) == PairsByBroadcast("product", 1, 1, 4, 5, 6, "float32", 1)


def test_the_same_rows_on_both_sides() -> None:
    found = seen(functional.cosine_similarity(A.unsqueeze(1), A.unsqueeze(0), dim=-1))
    assert found == PairsByBroadcast("cosine", 1, 1, 4, 4, 6, "float32", 2)


def test_each_sample_with_rows_of_its_own() -> None:
    found = seen((SETS[:, :, None] * SETS[:, None]).sum(-1))
    assert found == PairsByBroadcast("product", 1, 3, 4, 4, 6, "float32", 2)


def test_columns_compared_over_the_samples() -> None:
    """A covariance."""
    assert seen((A[:, :, None] * A[:, None, :]).mean(0)) == PairsByBroadcast("product", 1, 1, 6, 6, 4, "float32", 2)


def test_of_several_the_largest_and_those_alike() -> None:
    few = (ROWS * COLUMNS[:, :2]).sum()
    many = [(ROWS * COLUMNS).sum(-1).sum() for _ in range(3)]
    found = seen(few + sum(many, torch.zeros(())))
    assert found is not None and (found.columns, found.calls) == (5, 3)


def direction() -> Tensor:
    """The differences themselves are used as well."""
    apart = ROWS - COLUMNS
    return apart.square().sum(-1).sum() + apart.sum()


OTHERS: tuple[Callable[[], Tensor], ...] = (
    lambda: A @ B.T,
    lambda: torch.cdist(A, B),
    lambda: (ROWS - COLUMNS).abs().sum(-1),
    lambda: (ROWS - COLUMNS).norm(p=1, dim=-1),
    lambda: (ROWS * COLUMNS).sum(),
    lambda: (ROWS * COLUMNS).tanh().sum(-1),
    lambda: ((ROWS - COLUMNS).square() * B.exp()).sum(-1),
    lambda: (ROWS * torch.rand(4, 5, 6)).sum(-1),
    lambda: ((ROWS - torch.rand(4, 5, 6)) ** 2).sum(-1),
    lambda: ((ROWS - STORED) ** 2).sum(-1),
    lambda: (SETS * torch.rand(6)).sum(-1),
    lambda: (SETS * torch.rand(3, 4, 1)).sum(1),
    lambda: (SETS * (torch.rand(3, 4, 1) > 0.5)).sum(1),
    lambda: (SETS - SETS.mean(0)).pow(2).mean(0),
    lambda: (SETS - SETS.mean(-1, keepdim=True)).pow(2).mean(-1),
    lambda: SETS[:, :, None] + SETS[:, None],
    lambda: functional.layer_norm(SETS, (6,), torch.rand(6, requires_grad=True)),
    direction,
)
"""No product of two sets of rows: L1, a full sum, weights, masks, positions, a norm of layers; or more than one."""


@pytest.mark.parametrize("result", OTHERS)
def test_others_are_not_taken_for_it(result: Callable[[], Tensor]) -> None:
    assert seen(result()) is None


def test_what_stays_in_caches_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast_pairs, "FEWEST", FEWEST)
    assert seen((ROWS * COLUMNS).sum(-1)) is None


def test_the_first_backward_leaves_it_among_the_facts() -> None:
    recorder, namespace = begun(Recorder()), dict[str, Any]()
    with on(backward.tap, recorder, namespace):
        (ROWS * COLUMNS).sum(-1).mean().backward()
    assert recorder.facts["pairs_by_broadcast"] == PairsByBroadcast("product", 1, 1, 4, 5, 6, "float32", 2)

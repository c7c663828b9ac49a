"""Layers over classes in the graph of a backward: at how many positions they compute, and how many the loss reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_doctor.capture.describe.nodes import behind
from gpu_doctor.capture.describe.unused_logits import Layer, Limit, layers_of_losses

X = torch.rand(2, 6, 8, requires_grad=True)
HEAD = nn.Linear(8, 5)
Y = torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 1]])
KEPT = torch.tensor([[True, False, False, False, True, False], [False, True, False, False, False, False]])
LABELS = Y.masked_fill(~KEPT, -100)


def seen(loss: Tensor) -> list[Layer]:
    nodes, whole = behind(loss, 1000)
    assert whole
    return layers_of_losses(nodes)


def logits() -> Tensor:
    found: Tensor = HEAD(X)
    return found


def log_p() -> Tensor:
    """Of the right class at every position."""
    return functional.log_softmax(logits(), -1).gather(-1, Y[..., None]).squeeze(-1)


def apart() -> Tensor:
    """A loss for each position."""
    return functional.cross_entropy(logits().transpose(1, 2), Y, reduction="none")


LEFT_OUT: tuple[tuple[Callable[[], Tensor], str], ...] = (
    (lambda: functional.cross_entropy(logits().flatten(0, 1), LABELS.flatten()), "ignore_index"),
    (lambda: functional.cross_entropy(logits().transpose(1, 2), LABELS), "ignore_index"),
    (lambda: functional.cross_entropy(logits().flatten(0, 1), LABELS.flatten(), label_smoothing=0.1), "ignore_index"),
    (lambda: functional.cross_entropy(logits().double().div(0.7).view(-1, 5), LABELS.view(-1)), "ignore_index"),
    (
        lambda: functional.cross_entropy(
            functional.linear(X.transpose(0, 1), HEAD.weight).flatten(0, 1), LABELS.t().flatten()
        ),
        "ignore_index",
    ),
    (lambda: functional.cross_entropy(logits()[KEPT], Y[KEPT]), "picked logits"),
    (
        lambda: functional.cross_entropy(
            logits().flatten(0, 1).index_select(0, KEPT.flatten().nonzero()[:, 0]), Y[KEPT]
        ),
        "picked logits",
    ),
    (lambda: (apart() * KEPT).sum() / KEPT.sum(), "mask"),
    (lambda: (apart() * KEPT.float() * 2.0).mean(), "mask"),
    (lambda: apart().masked_fill(~KEPT, 0.0).sum(), "mask"),
    (lambda: torch.where(KEPT, apart(), torch.zeros(())).sum(), "mask"),
    (lambda: torch.where(~KEPT, torch.zeros(()), apart()).sum(), "mask"),
    (lambda: -(log_p() * KEPT).sum(), "mask"),
    (lambda: apart()[KEPT].mean(), "index"),
    (lambda: apart().masked_select(KEPT).mean(), "index"),
    (lambda: -log_p()[KEPT].mean(), "index"),
)


@pytest.mark.parametrize(("loss", "told_by"), LEFT_OUT)
def test_positions_that_a_loss_leaves_out(loss: Callable[[], Tensor], told_by: str) -> None:
    (layer,) = seen(loss())
    assert layer.limits == (Limit(told_by, 3),)
    assert (layer.rows, layer.classes, layer.width, layer.dtype, layer.sides) == (12, 5, 8, "float32", 2)


def test_where_the_classes_are_and_whether_they_have_a_bias() -> None:
    (last,) = seen(functional.cross_entropy(logits().flatten(0, 1), LABELS.flatten()))
    (before,) = seen(functional.cross_entropy(functional.linear(X, HEAD.weight).transpose(1, 2), LABELS))
    assert (last.bias, last.behind) == (True, 1)
    assert (before.bias, before.behind) == (False, 6)


def test_of_two_that_leave_positions_out_both_are_told() -> None:
    """The last position has no next word, and prompts are ignored."""
    (layer,) = seen(functional.cross_entropy(logits()[:, :-1].flatten(0, 1), LABELS[:, 1:].flatten()))
    assert layer.limits == (Limit("picked logits", 10), Limit("ignore_index", 2))


def test_the_last_position_alone() -> None:
    (layer,) = seen(functional.cross_entropy(logits()[:, -1], Y[:, -1]))
    assert layer.limits == (Limit("picked logits", 2),)


def test_a_weight_for_each_sample_counts_all_of_its_positions() -> None:
    (layer,) = seen((apart() * torch.tensor([[1.0], [0.0]])).sum())
    assert layer.limits == (Limit("mask", 6),)


def test_a_layer_that_gets_no_gradient_makes_one_product() -> None:
    frozen = HEAD.weight.detach()
    (layer,) = seen(functional.cross_entropy(functional.linear(X, frozen).flatten(0, 1), LABELS.flatten()))
    assert layer.sides == 1 and layer.limits


READ: tuple[Callable[[], Tensor], ...] = (
    lambda: functional.cross_entropy(logits().flatten(0, 1), Y.flatten()),
    lambda: functional.cross_entropy(HEAD(X[KEPT]), Y[KEPT]),
    lambda: (apart() * torch.full((2, 6), 0.5)).sum(),
    lambda: apart().mean(),
    lambda: -log_p().mean(),
)


@pytest.mark.parametrize("loss", READ)
def test_a_loss_that_reads_all(loss: Callable[[], Tensor]) -> None:
    (layer,) = seen(loss())
    assert layer.limits == ()


def images() -> Tensor:
    maps = nn.Conv2d(3, 5, 1)(torch.rand(2, 3, 4, 4))
    return functional.cross_entropy(
        maps, torch.full((2, 4, 4), 255).index_fill(2, torch.tensor(0), 1), ignore_index=255
    )


def twice() -> Tensor:
    """What is ignored in one loss is read by another."""
    both = logits()
    return functional.cross_entropy(both.flatten(0, 1), LABELS.flatten()) + both.square().mean()


def distilled() -> Tensor:
    return functional.kl_div(functional.log_softmax(logits(), -1), torch.full((2, 6, 5), 0.2), reduction="sum")


def with_an_entropy() -> Tensor:
    """Of every position, beside the loss of some."""
    own = functional.log_softmax(logits(), -1)
    return functional.nll_loss(own.flatten(0, 1), LABELS.flatten()) - (own.exp() * own).sum(-1).mean()


@pytest.mark.parametrize(
    "loss", [images, twice, distilled, with_an_entropy, lambda: logits().sum(), lambda: logits()[KEPT].square().mean()]
)
def test_others_are_not_taken_for_it(loss: Callable[[], Tensor]) -> None:
    assert [one.limits for one in seen(loss()) if one.limits] == []


def test_what_autograd_saved_is_not_unpacked() -> None:
    unpacked: list[Any] = []

    def unpack(packed: Any) -> Any:
        unpacked.append(packed)
        return packed

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        loss = functional.cross_entropy(logits().flatten(0, 1), LABELS.flatten())
    (layer,) = seen(loss)
    assert layer.limits == () and unpacked == []


def test_labels_elsewhere_are_counted_where_they_lie() -> None:
    head = nn.Linear(8, 5, device="meta")
    loss = functional.cross_entropy(head(torch.rand(12, 8, device="meta")), torch.zeros(12, device="meta").long())
    (layer,) = seen(loss)
    (limit,) = layer.limits
    assert isinstance(limit.left, Tensor) and limit.left.is_meta, "reading it would wait"


def test_of_a_graph_that_is_cut_off_nothing_is_told() -> None:
    nodes, whole = behind(apart().mean(), 3)
    assert not whole and len(nodes) >= 3

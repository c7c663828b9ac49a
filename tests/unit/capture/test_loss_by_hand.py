"""Losses over classes in the graph of a backward: those by hand are found, others are not taken for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpu_doctor.capture.describe.backward_graph import backward_graph
from gpu_doctor.capture.describe.loss_by_hand import loss_by_hand
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps import backward
from gpu_doctor.recording.setup import LossByHand
from tests.support.one_tap import on
from tests.support.told_loop import begun

LOGITS = torch.randn(2, 3, 5, requires_grad=True)
IMAGES = torch.randn(2, 5, 4, 4, requires_grad=True)
Y = torch.tensor([[0, 1, 2], [3, 4, 0]])
ONE_HOT = functional.one_hot(Y, 5).float()
MASKS = torch.arange(32).reshape(2, 4, 4) % 5
SOFT = torch.softmax(torch.arange(30.0).reshape(2, 3, 5) ** 0.5, -1)


def seen(loss: Tensor) -> LossByHand | None:
    return loss_by_hand(backward_graph(loss).nodes)


def p(logits: Tensor = LOGITS) -> Tensor:
    return torch.softmax(logits, -1)


def log_p() -> Tensor:
    return functional.log_softmax(LOGITS, -1)


@pytest.mark.parametrize(
    ("loss", "operations", "labels"),
    [
        (lambda: -(ONE_HOT * torch.log(p() + 1e-9)).sum(-1).mean(), "softmax add log mul sum", "one-hot"),
        (lambda: -(ONE_HOT * log_p()).sum(-1).mean(), "log_softmax mul sum", "one-hot"),
        (lambda: (-log_p() * functional.one_hot(Y, 5)).sum(), "log_softmax neg mul sum", "one-hot"),
        (lambda: -(ONE_HOT * torch.tensor([[1.0], [0.0], [1.0]]) * log_p()).mean(), "log_softmax mul mean", "one-hot"),
        (lambda: -(ONE_HOT * torch.tensor([[1.0], [0.5], [2.0]]) * log_p()).mean(), "log_softmax mul mean", "soft"),
        (lambda: functional.cross_entropy(LOGITS[0], ONE_HOT[0]), "log_softmax mul sum", "one-hot"),
        (lambda: -((0.9 * ONE_HOT + 0.02) * log_p()).sum(), "log_softmax mul sum", "smoothed"),
        (lambda: -((0.7 * ONE_HOT + 0.3 * ONE_HOT.roll(1, 1)) * log_p()).sum(), "log_softmax mul sum", "soft"),
        (lambda: (-2.0 * (ONE_HOT * log_p())).sum(), "log_softmax mul scale sum", "one-hot"),
        (lambda: -(SOFT * torch.log(p())).sum(), "softmax log mul sum", "soft"),
        (lambda: functional.kl_div(log_p(), SOFT, reduction="sum"), "log_softmax mul sub sum", "soft"),
        (lambda: -torch.log(p()).gather(-1, Y[..., None]).mean(), "softmax log gather", "indices"),
        (lambda: -torch.log(p(LOGITS[0]))[torch.arange(3), Y[0]].mean(), "softmax log index", "indices"),
        (
            lambda: functional.nll_loss(torch.log(p().clamp(min=1e-7)).flatten(0, 1), Y.flatten()),
            "softmax clamp log nll_loss",
            "indices",
        ),
    ],
)
def test_by_hand(loss: Any, operations: str, labels: str) -> None:
    found = seen(loss())
    assert found is not None
    assert (" ".join(found.operations), found.labels) == (operations, labels)
    assert found.classes == 5 and found.dtype == "float32"


def test_a_probability_that_one_hot_targets_pick_before_the_logarithm() -> None:
    found = seen(-torch.log((p() * ONE_HOT).sum(-1) + 1e-9).mean())
    assert found is not None and found.operations == ("softmax", "mul", "sum", "log of what was picked")


@pytest.mark.parametrize("last", [False, True])
def test_images_have_their_classes_in_dimension_one(last: bool) -> None:
    target = functional.one_hot(MASKS, 5)
    logp = torch.log(torch.softmax(IMAGES, 1))
    loss = (target * logp.permute(0, 2, 3, 1)).sum() if last else (target.permute(0, 3, 1, 2) * logp).sum()
    found = seen(-loss)
    assert found is not None and (found.labels, found.rows, found.classes) == ("one-hot", 32, 5)


def focal() -> Tensor:
    own = p()
    return -((1 - own) ** 2 * ONE_HOT * torch.log(own)).sum()


def dice() -> Tensor:
    own, target = torch.softmax(IMAGES, 1), functional.one_hot(MASKS, 5).permute(0, 3, 1, 2)
    return 1 - (2 * (own * target).sum((2, 3)) / (own + target).sum((2, 3))).mean()


def mixture() -> Tensor:
    """Of Jensen and Shannon: the logarithm is of two distributions together."""
    return -(SOFT * torch.log(0.5 * (p() + SOFT))).sum()


def entropy() -> Tensor:
    own = log_p()
    return -(own.exp() * own).sum()


@pytest.mark.parametrize(
    "loss",
    [
        lambda: functional.cross_entropy(LOGITS.flatten(0, 1), Y.flatten()),
        lambda: functional.cross_entropy(LOGITS.flatten(0, 1), Y.flatten(), label_smoothing=0.1),
        lambda: functional.binary_cross_entropy_with_logits(LOGITS, ONE_HOT),
        lambda: (p() @ torch.randn(5, 5)).sum(),
        lambda: -(torch.rand(2, 3, 1) * log_p()).sum(),
        lambda: -log_p().gather(-1, Y[..., None]).mean(),
        lambda: -torch.log(p())[Y > 1].sum(),
        lambda: -torch.log(p()).gather(-1, torch.zeros(2, 3, 4, dtype=torch.long)).sum(),
        focal,
        dice,
        entropy,
        mixture,
        lambda: -(ONE_HOT * torch.log(p() + p(LOGITS.roll(1, 0)))).sum(),
        lambda: LOGITS.sum(),
    ],
)
def test_other_losses(loss: Any) -> None:
    assert seen(loss()) is None


def test_what_autograd_saved_is_not_unpacked() -> None:
    unpacked: list[Any] = []

    def unpack(packed: Any) -> Any:
        unpacked.append(packed)
        return packed

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        loss = -(ONE_HOT * log_p()).sum()
    assert seen(loss) is None and unpacked == []


def test_a_target_that_was_changed_since_is_left_to_the_users_backward() -> None:
    target = ONE_HOT.clone()
    loss = -(target * log_p()).sum()
    target.mul_(2.0)
    assert seen(loss) is None


def test_targets_elsewhere_are_not_looked_at() -> None:
    logits = torch.randn(2, 5, device="meta", requires_grad=True)
    found = seen(-(torch.zeros(2, 5, device="meta") * torch.log(p(logits))).sum())
    assert found is not None and found.labels == "" and found.rows == 2


def heard() -> Recorder:
    recorder, net = begun(Recorder()), nn.Linear(4, 5)
    with on(backward.tap, recorder, {"net": net}):
        (-(ONE_HOT[0] * functional.log_softmax(net(torch.rand(3, 4)), -1)).sum()).backward()
    return recorder


def test_the_first_backward_leaves_it_among_the_facts() -> None:
    assert heard().facts["loss_by_hand"] == LossByHand(("log_softmax", "mul", "sum"), "one-hot", 3, 5, "float32")


def test_what_cannot_be_read_leaves_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(nodes: Any) -> None:
        raise ValueError("no")

    monkeypatch.setattr(backward, "loss_by_hand", broken)
    recorder = heard()
    assert [one for one in recorder.notes if "How the loss is computed" in one and one.endswith(": no")]
    assert recorder.facts["graph_leaves"] == 2, "the rest is there"

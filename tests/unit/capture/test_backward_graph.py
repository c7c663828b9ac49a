"""What the walk through a loss's graph tells."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpu_doctor.capture.describe.backward_graph import backward_graph

TRIANGLE = torch.ones(8, 8, dtype=torch.bool).tril()


def queries() -> torch.Tensor:
    return torch.randn(2, 4, 8, 16, requires_grad=True)


def attended(**asked: Any) -> torch.Tensor:
    q = queries()
    return functional.scaled_dot_product_attention(q, q, q, **asked).sum()


def test_leaves_and_operations() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    graph = backward_graph(net(torch.rand(2, 4)).sum())
    assert {id(one) for one in graph.leaves} == {id(one) for one in net.parameters()}
    assert graph.operations == 10 and graph.attention == ()


@pytest.mark.parametrize("nothing", [None, 3.0, torch.zeros(1), []])
def test_what_has_no_graph_tells_nothing(nothing: Any) -> None:
    assert backward_graph(nothing).operations == 0


@pytest.mark.parametrize(
    ("asked", "kernel"),
    [
        ({}, "fused"),
        ({"is_causal": True}, "fused"),
        ({"attn_mask": TRIANGLE}, "fused"),
        ({"dropout_p": 0.1}, "math"),
        ({"attn_mask": TRIANGLE, "dropout_p": 0.1}, "math"),
        ({"attn_mask": torch.zeros(8, 8, requires_grad=True)}, "math"),
    ],
)
def test_the_kernel_of_an_attention(asked: dict[str, Any], kernel: str) -> None:
    (found,) = backward_graph(attended(**asked)).attention
    assert (found.kernel, found.dtype) == (kernel, "float32")
    assert (found.calls, found.samples, found.heads, found.queries, found.keys, found.head_size) == (1, 2, 4, 8, 8, 16)


def split(x: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values of four heads."""
    return [one.view(2, 8, 4, 4).transpose(1, 2) for one in nn.Linear(16, 48)(x).chunk(3, -1)]


def eager(x: torch.Tensor) -> torch.Tensor:
    q, k, v = split(x)
    scores = (q @ k.transpose(-2, -1) / 2.0).masked_fill(~TRIANGLE, float("-inf"))
    return functional.dropout(functional.softmax(scores, -1), 0.1) @ v


def in_letters(x: torch.Tensor) -> torch.Tensor:
    q, k, v = split(x)
    return torch.einsum("bhqk,bhkd->bhqd", torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1), v)


def with_weights(x: torch.Tensor) -> torch.Tensor:
    return nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x, attn_mask=torch.zeros(8, 8))[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("made", "heads"), [(eager, (2, 4)), (in_letters, (2, 4)), (with_weights, (8, 1))])
def test_attention_by_hand(made: Callable[[torch.Tensor], torch.Tensor], heads: tuple[int, int]) -> None:
    (found,) = backward_graph(made(torch.randn(2, 8, 16)).sum()).attention
    assert (found.kernel, found.samples, found.heads) == ("by hand", *heads)
    assert (found.queries, found.keys, found.head_size) == (8, 8, 4)


def linear(x: torch.Tensor) -> torch.Tensor:
    q, k, v = split(x)
    return q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)


def classified(x: torch.Tensor) -> torch.Tensor:
    q, k, v = split(x)
    return functional.softmax(nn.Linear(4, 4)(q @ k.transpose(-2, -1) @ v), -1)


def compared(x: torch.Tensor) -> torch.Tensor:
    q, k, _ = split(x)
    return functional.softmax(q @ k.transpose(-2, -1), -1).square()


@pytest.mark.parametrize("made", [linear, classified, compared])
def test_a_softmax_that_weighs_no_values_by_a_product_is_no_attention(
    made: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert backward_graph(made(torch.randn(2, 8, 16)).sum()).attention == ()


def test_alike_calls_are_counted_and_a_softmax_of_the_users_is_none() -> None:
    q = queries()
    y = functional.scaled_dot_product_attention(q, q, q)
    y = functional.scaled_dot_product_attention(y, q, q)
    (found,) = backward_graph(torch.softmax(y, -1).sum()).attention
    assert (found.kernel, found.calls) == ("fused", 2)


class Named(torch.autograd.Function):
    """Keeps what it needs under names that torch's own nodes have."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.name, ctx.variable = "doubled", x.detach()
        return 2.0 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2.0 * gradient


def test_what_a_function_of_the_users_keeps_is_not_taken_for_torchs() -> None:
    x = torch.rand(4, requires_grad=True)
    graph = backward_graph(Named.apply(x).sum())  # type: ignore[no-untyped-call]
    assert [id(one) for one in graph.leaves] == [id(x)]


def test_cross_attention_has_keys_of_its_own() -> None:
    q, k = queries(), torch.randn(2, 4, 24, 16, requires_grad=True)
    (found,) = backward_graph((torch.softmax(q @ k.transpose(-2, -1), -1) @ k).sum()).attention
    assert (found.queries, found.keys) == (8, 24)


def test_nothing_that_somebody_packed_is_unpacked() -> None:
    unpacked: list[Any] = []

    def unpack(one: torch.Tensor) -> torch.Tensor:
        unpacked.append(one)
        return one

    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, unpack):
        loss = attended(attn_mask=TRIANGLE)
    (found,) = backward_graph(loss).attention
    assert not unpacked and found.kernel == "fused"


def test_what_is_checkpointed_is_not_computed_again() -> None:
    calls: list[int] = []

    def part(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return functional.scaled_dot_product_attention(x, x, x, attn_mask=TRIANGLE)

    loss = checkpoint(part, queries(), use_reentrant=False).sum()
    assert backward_graph(loss).attention[0].kernel == "fused" and len(calls) == 1


def test_a_graph_that_was_gone_through_is_read_without_its_tensors() -> None:
    loss = attended(attn_mask=TRIANGLE)
    loss.backward()
    assert backward_graph(loss).attention[0].kernel == "fused"


def test_sequences_without_their_padding_are_told() -> None:
    x, lengths = torch.rand(3, 8, 4, requires_grad=True), torch.tensor([8, 5, 2])
    lstm = nn.LSTM(4, 4, batch_first=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    assert backward_graph(lstm(packed)[1][0].sum()).packed
    assert not backward_graph(lstm(x)[1][0].sum()).packed


def test_no_tensor_lives_on_for_it() -> None:
    loss = attended(attn_mask=TRIANGLE)
    ref = weakref.ref(loss)
    gc.disable()
    try:
        graph = backward_graph(loss)
        del loss
        assert ref() is None and len(graph.leaves) == 1
    finally:
        gc.enable()

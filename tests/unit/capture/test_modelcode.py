"""Attention by hand is told from the code of a model's classes, and from nothing else that multiplies."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_doctor.capture.describe.attention import Attention, attention, product_weights


class Causal(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), -1)
        out: Tensor = self.out(weights @ v)
        return out


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        k, q = self.key(x), self.query(x)
        return (q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5).softmax(-1) @ self.value(x)  # type: ignore[no-any-return]


def annotated(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    return torch.matmul(scores.softmax(dim=-1), value)


class Annotated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        return annotated(x, x, self.linears(x))


class Apart(nn.Module):
    """Scaled dot-product attention as a module without weights of its own."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / self.temperature, 2), v)


class Transposed(nn.Module):
    """A layer that keeps its weight the other way round, as GPT-2's in transformers does."""

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(ins, outs))


class Converted(Causal):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = Transposed(32, 96), Transposed(32, 32)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return annotated(x, x, x)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.values, self.inner = nn.Linear(32, 16), Apart(5.6)


class Fused(Causal):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        if hasattr(F, "scaled_dot_product_attention"):
            return F.scaled_dot_product_attention(q, k, v)
        return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(8), -1) @ v


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.router(x).softmax(-1) @ x


class Linear(nn.Module):
    """Softmax of queries and of keys (Shen et al. 2021, Efficient Attention): linear in the tokens, no fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.qkv = 8**-0.5, nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        context = torch.einsum("bnd,bne->bde", k.softmax(-2), v)
        return torch.einsum("bnd,bde->bne", q.softmax(-1) * self.scale, context)


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.MultiheadAttention(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mixing(x, x, x)[0]
        return out


class NotAsking(Asking):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.mixing(x, x, x, need_weights=False)[0]
        return out


@pytest.mark.parametrize(
    ("module", "width"),
    [
        (Causal(), 32),
        (nn.ModuleList([Head() for _ in range(4)]), 8),
        (Annotated(), 32),
        (Around(), 16),
        (Asking(), 32),
    ],
)
def test_attention_by_hand_and_its_width(module: nn.Module, width: int) -> None:
    found = attention([nn.Sequential(module)])
    assert found.width == width
    assert found.asks_weights == isinstance(module, Asking)


class TokensFirst(Causal):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.transpose(0, 1) for one in self.qkv(x).chunk(3, -1))
        return (F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), -1) @ v).transpose(0, 1)


class Permuted(Causal):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.permute(one, (1, 0, 2)) for one in self.qkv(x).chunk(3, -1))
        return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), -1) @ v


class Heads(Causal):
    """As nanoGPT has it."""

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (one.view(b, t, 4, c // 4).transpose(1, 2) for one in self.qkv(x).split(c, dim=2))
        y = F.softmax((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))), dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(b, t, c)


class AskingBatchFirst(Asking):
    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Causal(), True),
        (Heads(), True),
        (Head(), True),
        (TokensFirst(), None),
        (Permuted(), None),
        (Asking(), False),
        (AskingBatchFirst(), True),
    ],
)
def test_samples_first_or_tokens_first(module: nn.Module, said: bool | None) -> None:
    found = attention([nn.Sequential(module)])
    assert found.batch_first is said


def test_where_it_stands_is_named() -> None:
    found = attention([nn.ModuleDict({"block": nn.ModuleDict({"attn": Causal()})})])
    assert found.places == ("block.attn: Causal",)


@pytest.mark.parametrize(
    "module",
    [
        Fused(),
        Experts(),
        Linear(),
        NotAsking(),
        nn.TransformerEncoderLayer(32, 4),
        nn.MultiheadAttention(32, 4),
        nn.Linear(32, 32),
    ],
)
def test_all_else_is_left_alone(module: nn.Module) -> None:
    assert attention([nn.Sequential(module)]) == Attention()


def test_a_model_of_transformers_says_itself_what_it_uses() -> None:
    module: Any = Causal()
    module.config = SimpleNamespace(_attn_implementation="sdpa")
    assert attention([module]) == Attention()
    module.config = SimpleNamespace(_attn_implementation="eager")
    assert attention([module]).places


def test_weights_that_are_multiplied_with() -> None:
    tied = nn.ModuleDict({"words": nn.Embedding(100, 32), "head": nn.Linear(32, 100)})
    assert product_weights([tied]) == 3200
    tied["head"].weight = tied["words"].weight
    assert product_weights([tied]) == 3200
    assert product_weights([nn.ModuleDict({"words": nn.Embedding(100, 32), "lazy": nn.LazyLinear(3)})]) == 0

"""Attention by hand is told from the code of a model's classes, and from nothing else that multiplies."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_doctor.capture.describe.attention import Attention, attention


class Causal(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), -1)
        out: Tensor = self.out(weights @ v)
        return out


class Heads(Causal):
    """As nanoGPT has it."""

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.size()
        q, k, v = (one.view(b, t, 4, c // 4).transpose(1, 2) for one in self.qkv(x).split(c, dim=2))
        y = F.softmax((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1))), dim=-1) @ v
        return y.transpose(1, 2).contiguous().view(b, t, c)


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
        (Heads(), 32),
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

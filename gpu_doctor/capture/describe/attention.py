"""Finds attention written by hand in a model, from the byte code of its classes.

Nothing is run and no file is read: some ten microseconds a class, once a run.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

from torch import nn

PRODUCTS: Final = {"matmul", "bmm", "einsum", "baddbmm"}
FUSED: Final = {
    *("scaled_dot_product_attention", "flex_attention", "flash_attn_func", "flash_attn_varlen_func"),
    *("flash_attn_qkvpacked_func", "memory_efficient_attention"),
}
"""Who names one of these has it already, maybe behind a switch."""
MOVES: Final = {"transpose", "swapaxes", "permute"}
SCALES: Final = {"sqrt", "rsqrt"}
_SCALED: Final = ("scale", "temperature")
TABLES: Final = (nn.Embedding, nn.EmbeddingBag)
"""Layers whose weight is looked up in, and takes part in no product."""


@dataclass(frozen=True)
class Attention:
    """Attention that is computed product by product, in all modules together."""

    places: tuple[str, ...] = ()
    """Where, such as `blocks.0.attn: CausalSelfAttention`."""
    width: int = 0
    """Heads times head size of the widest."""
    asks_weights: bool = False
    """It is `nn.MultiheadAttention`, called without `need_weights=False`, that computes it so."""
    batch_first: bool | None = None
    """Whether the first of them takes (sample, token, width) and not (token, sample, width); None = cannot be told."""


def attention(modules: Iterable[nn.Module]) -> Attention:
    """Attention by hand in outermost modules; no places where there is none, or its width is not known.

    It is told by a function with two products, a softmax and a scale, in a class (or called from it) that names no
    fused attention. Models of transformers say it themselves: `config._attn_implementation`.
    """
    found: list[tuple[str, int]] = []
    asked, first = False, None
    verdicts: dict[type, bool] = {}
    for module in modules:
        parts = dict(module.named_modules())
        for name, part in parts.items():
            kind = type(part)
            if kind.__module__.startswith("torch."):
                continue
            if kind not in verdicts:
                verdicts[kind] = by_hand(kind)
            weights = _asks_for_weights(part)
            if not (_eager(part, verdicts[kind]) or weights):
                continue
            width = _width(part) or _width(parts.get(name.rpartition(".")[0]))
            if width:
                asked = asked or weights
                first = first if found else _batch_first(part)
                found.append((f"{name or 'model'}: {kind.__name__}", width))
    return Attention(tuple(place for place, _ in found), max((width for _, width in found), default=0), asked, first)


def product_weights(modules: Iterable[nn.Module]) -> int:
    """Numbers in weights that take part in products: of two dimensions or more, no tables that are looked up in."""
    parts = {id(part): part for module in modules for part in module.modules()}.values()
    held = {
        id(p): p
        for part in parts
        if not isinstance(part, TABLES)
        for p in part.parameters(recurse=False)
        if not nn.parameter.is_lazy(p) and p.dim() > 1
    }
    return sum(p.numel() for p in held.values())


def by_hand(kind: type) -> bool:
    """Whether a class computes attention product by product, as its own functions say."""
    codes = list(_codes(kind))
    if any(FUSED & set(code.co_names) for code in codes):
        return False
    return any(_is_attention(code) for code in codes)


def _codes(kind: type) -> Iterator[CodeType]:
    """Code of the functions of a class, and of plain functions of the user's that they call by name."""
    own = [one for one in vars(kind).values() if isinstance(one, FunctionType)]
    called = {
        id(one): one
        for function in own
        for name in function.__code__.co_names
        if isinstance(one := function.__globals__.get(name), FunctionType)
        and not str(getattr(one, "__module__", "")).startswith("torch")
    }
    yield from (one.__code__ for one in (*own, *called.values()))


def _is_attention(code: CodeType) -> bool:
    names = set(code.co_names)
    if not any(map(_is_softmax, names)):
        return False
    scaled = names & SCALES or {0.5, -0.5} & {one for one in code.co_consts if isinstance(one, float)}
    if not scaled and not any(word in name for name in (*names, *code.co_varnames) for word in _SCALED):
        return False
    softmaxes = sum(
        one.opname.startswith("LOAD_") and isinstance(one.argval, str) and _is_softmax(one.argval)
        for one in dis.get_instructions(code)
    )
    products = sum(
        (one.opname == "BINARY_OP" and one.argrepr == "@")
        or one.opname == "BINARY_MATRIX_MULTIPLY"
        or (one.opname.startswith("LOAD_") and one.argval in PRODUCTS)
        for one in dis.get_instructions(code)
    )
    return products >= 2 and softmaxes == 1  # two are of queries and of keys: linear attention, another function


def _is_softmax(name: str) -> bool:
    return "softmax" in name and "log" not in name


def _eager(part: nn.Module, written: bool) -> bool:
    """What a model of transformers was told to use; of all others, what is written."""
    said: Any = getattr(vars(part).get("config"), "_attn_implementation", None)
    return written if said is None else written and said == "eager"


def _batch_first(part: nn.Module) -> bool | None:
    """Whether a module that computes attention takes samples first, then tokens; None where that cannot be told.

    `nn.MultiheadAttention` says so itself, and takes tokens first by default. Matrix products work on the last two
    dimensions, so what is written by hand has its tokens second to last, behind the samples, unless it turns the first
    two about or names its dimensions by letters.
    """
    torchs = [child for child in part.children() if type(child) is nn.MultiheadAttention]
    if torchs:
        return bool(torchs[0].batch_first)
    codes = list(_codes(type(part)))
    return None if any("einsum" in code.co_names or _turns_first_two(code) for code in codes) else True


def _turns_first_two(code: CodeType) -> bool:
    """Whether it moves the first dimension: `x.transpose(0, 1)`, `x.permute(1, ...)`, also in a comprehension."""
    if any(_turns_first_two(const) for const in code.co_consts if isinstance(const, CodeType)):
        return True
    steps = list(dis.get_instructions(code))
    for at, one in enumerate(steps):
        if one.opname.startswith("LOAD_") and one.argval in MOVES:
            known = [each.argval for each in steps[at + 1 : at + 5] if each.opname.startswith("LOAD_")]
            given = [n for each in known for n in (each if isinstance(each, tuple) else (each,)) if type(n) is int]
            if given[:1] == [1] if one.argval == "permute" else set(given[:2]) == {0, 1}:
                return True
    return False


def _asks_for_weights(part: nn.Module) -> bool:
    """It holds an nn.MultiheadAttention and calls it with the default `need_weights=True`, as far as its code says."""
    if not any(type(child) is nn.MultiheadAttention for child in part.children()):
        return False
    codes = [one.__code__ for one in vars(type(part)).values() if isinstance(one, FunctionType)]
    said = any("need_weights" in str(const) for code in codes for const in code.co_consts)
    return not said and any(code.co_name == "forward" for code in codes)


def _width(part: nn.Module | None) -> int:
    """Heads times head size, by the layers that a module holds itself; 0 where that cannot be told.

    A layer that makes queries, keys and values at once is wider than it is deep, one of few shared keys less wide.
    """
    children = list(part.children()) if part is not None else []
    whole = sum(one.embed_dim for one in children if type(one) is nn.MultiheadAttention)
    weights = [vars(one)["_parameters"].get("weight") for one in children if not isinstance(one, TABLES)]
    flat = [one for one in weights if one is not None and not nn.parameter.is_lazy(one) and one.dim() == 2]
    return whole or max((min(one.shape) for one in flat), default=0)

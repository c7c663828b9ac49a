"""Measures how much longer rows take to be compared in one large tensor than by a matrix product.

The large tensor is written and read again several times, forward and backward, which depends on the caches and on the
kind of comparison; the product depends on the size of the rows. So both ways are computed when the run is over, with
the sizes of the run, for as many of its rows as take some ten ms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from gpu_doctor.capture.taps import both_ways
from gpu_doctor.capture.taps.both_ways import CLOCKS, Clocks
from gpu_doctor.recording.setup import PairsByBroadcast

NUMBERS: Final = 1 << 22
"""Of the large tensor, at most, where it is tried: 16 MiB, more than the caches of a core."""


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """`cdist`, which has no half precision on a CPU."""
    halves = a.dtype.itemsize == 2
    return torch.cdist(a.float(), b.float()).to(a.dtype) if halves else torch.cdist(a, b)


Way = Callable[[Tensor, Tensor], Tensor]
LARGE: Final[Mapping[str, Way]] = {
    "product": lambda a, b: (a.unsqueeze(-2) * b.unsqueeze(-3)).sum(-1),
    "cosine": lambda a, b: functional.cosine_similarity(a.unsqueeze(-2), b.unsqueeze(-3), dim=-1),
    "squares": lambda a, b: (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1),
    "norm": lambda a, b: (a.unsqueeze(-2) - b.unsqueeze(-3)).norm(dim=-1),
}
"""Kind -> how the large tensor is made and added up,"""
BY_PRODUCT: Final[Mapping[str, Way]] = {
    "product": lambda a, b: a @ b.mT,
    "cosine": lambda a, b: functional.normalize(a, dim=-1) @ functional.normalize(b, dim=-1).mT,
    "squares": lambda a, b: _distances(a, b).square(),
    "norm": _distances,
}
"""and the same by a matrix product."""


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figure in fact `pairs_by_broadcast`, where the run compared rows so; see `after_run.py`."""
    found = facts.get("pairs_by_broadcast")
    if not isinstance(found, PairsByBroadcast):
        return {}
    return {"pairs_by_broadcast": replace(found, longer_s=longer_s(found))}


def longer_s(one: PairsByBroadcast, clocks: Clocks = CLOCKS) -> tuple[float, ...]:
    """Seconds, least, median and most, that the large tensor takes longer in a forward and backward."""
    size = min(one.size, NUMBERS)
    samples = max(min(one.samples, NUMBERS // (one.rows * one.columns * size)), 1)
    columns = max(min(one.columns, NUMBERS // size), 1)
    rows = max(min(one.rows, NUMBERS // (columns * size)), 1)
    with both_ways.as_in_training():
        sides = []
        for count, learned in ((rows, True), (columns, one.learned > 1)):
            made = torch.arange(float(count * size), device="cpu").sin().expand(samples, -1)
            side = made.reshape(samples, count, size).to(getattr(torch, one.dtype))
            sides.append(side.requires_grad_(learned))
        taking = [side for side in sides if side.requires_grad]
        ways = (lambda: LARGE[one.kind](*sides), lambda: BY_PRODUCT[one.kind](*sides))
        slow, fast = (both_ways.passes(way, taking, clocks) for way in ways)
        return both_ways.longer_s(slow, fast, clocks, one.calls * one.numbers / (samples * rows * columns * size))

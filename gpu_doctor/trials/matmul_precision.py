"""Reads and restores torch's precision of float32 products, under its older names and those of torch 2.9.

Torch keeps both and mixes them badly: where a newer name (`torch.backends.cuda.matmul.fp32_precision`) was set, it may
refuse to tell the older, and writing an older name writes the newer as well, "ieee" where none was set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import torch

T = TypeVar("T")
_NEWER: Final = (
    *("", "cudnn", "mkldnn", "cuda.matmul", "mkldnn.matmul"),
    *("cudnn.conv", "cudnn.rnn", "mkldnn.conv", "mkldnn.rnn"),
)
"""Parts of `torch.backends` that have `fp32_precision`; a part that others inherit from comes first (torch 2.13)."""


def precisions() -> dict[str, Any]:
    """Returns the present precision as plain data; None for each part that torch refuses to return."""
    return {
        "matmul": unless_refused(torch.get_float32_matmul_precision),
        "convolutions": unless_refused(_convolutions),
        "newer": {name: place.fp32_precision for name, place in newer_places()},
    }


def put_back(kept: dict[str, Any]) -> None:
    """Restores the precision that `precisions` returned; equal values are not written."""
    if kept["matmul"] not in (None, unless_refused(torch.get_float32_matmul_precision)):
        torch.set_float32_matmul_precision(kept["matmul"])
    if kept["convolutions"] not in (None, unless_refused(_convolutions)):
        torch.backends.cudnn.allow_tf32 = kept["convolutions"]
    for name, place in newer_places():  # last: the older ones write these
        written = kept["newer"].get(name, place.fp32_precision)
        if place.fp32_precision != written:
            place.fp32_precision = written


def newer_places() -> Iterator[tuple[str, Any]]:
    """Yields name and owner of every `fp32_precision` that this torch has."""
    for name in _NEWER:
        place: Any = torch.backends
        for part in name.split(".") if name else ():
            place = getattr(place, part, None)
        if hasattr(place, "fp32_precision"):
            yield name, place


def unless_refused(ask: Callable[[], T]) -> T | None:
    """Returns what `ask` returns; None if torch refuses because older and newer names are mixed."""
    try:
        return ask()
    except RuntimeError:
        return None


def _convolutions() -> bool:
    return bool(torch.backends.cudnn.allow_tf32)

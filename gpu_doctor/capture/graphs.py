"""Lets a graph that torch compiles go right through a wrapper of ours, as if there were none.

A module of its own, which torch reads with the user's code; most of ours it leaves out (see `taps/compiler.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling
"""True while torch reads what it compiles."""


def through(original: Callable[..., Any], fenced: Callable[..., Any]) -> Callable[..., Any]:
    """`fenced`; what is compiled calls `original`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return original(*args, **kwargs) if _dynamo() else fenced(*args, **kwargs)

    return call

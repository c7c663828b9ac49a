"""Makes torch compile the original function instead of our wrapper of it.

It is a module of its own because torch reads it with the user's code; it skips most of ours (see `taps/compiler.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling
"""Returns True while torch traces code to compile it."""


def through(original: Callable[..., Any], fenced: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls `fenced`, or `original` while torch compiles it."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        return original(*args, **kwargs) if _dynamo() else fenced(*args, **kwargs)

    return call

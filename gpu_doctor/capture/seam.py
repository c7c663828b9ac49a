"""A stand-in for a tensor method that passes for the original.

`__torch_function__` of tensor subclasses is handed the method that stands on `torch.Tensor` at that moment, and some
libraries (torchvision's tv_tensors) look it up in a set of methods. So the stand-in equals the method that it wraps
and has its hash.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


class Seam:
    """Callable and descriptor: `call(original, self, *args, **kwargs)` runs instead of the method."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._original, self._call = original, call
        functools.update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self._original, *args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)

"""Stand-ins for functions and tensor methods that compare equal to the original, and that torch can compile.

`__torch_function__` of tensor subclasses gets the method that is on `torch.Tensor` at that moment, and some libraries
(torchvision's tv_tensors) look that method up in a set.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


class StandIn:
    """Function that runs `call` instead of the original, and has the original's equality and hash."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._original, self._call = original, call
        functools.update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs `call` with the same arguments."""
        __tracebackhide__ = True
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)


class Seam(StandIn):
    """Stand-in for a method: `call(self, *args, **kwargs)` runs instead."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

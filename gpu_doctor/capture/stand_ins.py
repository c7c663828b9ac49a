"""Stand-ins for functions and tensor methods that pass for the original. A graph that torch compiles goes through them.

`__torch_function__` of tensor subclasses is handed the method that stands on `torch.Tensor` at that moment, and some
libraries (torchvision's tv_tensors) look it up in a set of methods.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


class StandIn:
    """Runs `call` in the place of a function, and passes for it: it equals what it stands for and has its hash."""

    def __init__(self, original: Callable[..., Any], call: Callable[..., Any]) -> None:
        self._original, self._call = original, call
        functools.update_wrapper(self, original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs what is to be called in its place."""
        __tracebackhide__ = True
        return self._call(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._original or self._original == other

    def __hash__(self) -> int:
        return hash(self._original)


class Seam(StandIn):
    """A method: `call(self, *args, **kwargs)` runs instead of it."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

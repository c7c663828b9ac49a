"""Who calls each operator: the user's line and the module, seen while a few steps run under a dispatch mode."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_doctor.capture import Place, Places, outwards

_CALLS: Final = "_call_impl"
"""The function of `nn.Module` in which the frames of all modules stand."""


@dataclass(frozen=True)
class Caller:
    """A line of the user's, and the innermost module that was being called; empty and None where there is none."""

    place: Place | None
    module: str


class Callers(TorchDispatchMode):
    """Counts the callers of each operator while it is active; it changes no result."""

    def __init__(self, names: dict[int, str]) -> None:
        """Nothing was called yet.

        Args:
            names: id of a module -> its name in the model.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Counter[Caller]] = {}
        """By operator: `aten::addmm`."""
        self._places, self.names = Places(), names
        self.over = False
        """What is called from now on is no part of the loop."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Lets the operator run, and notes who calls it."""
        if self.over:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        caller = Caller(self._places.of(frame), self._module(frame))
        self.found.setdefault(func.name().partition(".")[0], Counter())[caller] += 1
        return func(*args, **(kwargs or {}))

    def _module(self, frame: FrameType | None) -> str:
        """`layer1.conv (Conv2d)`; the class alone of a module that the model does not name."""
        for one in outwards(frame):
            if one.f_code.co_name == _CALLS:
                module = one.f_locals.get("self")
                if isinstance(module, torch.nn.Module):
                    name, kind = self.names.get(id(module), ""), type(module).__name__
                    return f"{name} ({kind})" if name else kind
        return ""

"""Finds the callers of each operator, the user's line and the module, while a few steps run under a dispatch mode."""

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
"""Name of the function of `nn.Module` that runs every module; its frames contain the module."""


@dataclass(frozen=True)
class Caller:
    """A caller of an operator: the user's line (or None), and the innermost module being called (or '')."""

    place: Place | None
    module: str


class Callers(TorchDispatchMode):
    """Counts the callers of each operator while it is active; it changes no result."""

    def __init__(self, names: dict[int, str]) -> None:
        """Starts without calls.

        Args:
            names: id of a module -> its name in the model.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Counter[Caller]] = {}
        """Operator, such as `aten::addmm` -> number of calls by caller."""
        self._places, self.names = Places(), names
        self.over = False
        """True once the loop has ended, so that further calls do not count."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator and counts its caller."""
        if self.over:
            return func(*args, **(kwargs or {}))
        frame = sys._getframe(1)
        caller = Caller(self._places.of(frame), self._module(frame))
        self.found.setdefault(func.name().partition(".")[0], Counter())[caller] += 1
        return func(*args, **(kwargs or {}))

    def _module(self, frame: FrameType | None) -> str:
        """Returns the innermost module around a frame, `layer1.conv (Conv2d)`, or its class if it has no name."""
        for frame_around in outwards(frame):
            if frame_around.f_code.co_name == _CALLS:
                module = frame_around.f_locals.get("self")
                if isinstance(module, torch.nn.Module):
                    name, kind = self.names.get(id(module), ""), type(module).__name__
                    return f"{name} ({kind})" if name else kind
        return ""

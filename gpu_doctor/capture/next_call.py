"""A stand-in on `nn.Module.__call__` that waits for the next outermost module and takes itself off when that is called.

It comes off before the module's inside runs: no submodule goes through it, and nothing that is compiled in there is
traced with it. torch's own global hooks would make a compiled model warn, and have every compiled function checked anew
whenever one comes or goes; this stand-in leaves the graphs of a compiled step as they are (see `graphs.through`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from gpu_doctor.capture.graphs import through
from gpu_doctor.capture.patching import Patches

_Call = TypeVar("_Call", bound=Callable[..., Any])
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]


def _as_it_is(call: _Call) -> _Call:
    return call


class NextCall:
    """Tells of the next outermost module with parameters that is called; off until `wait`."""

    def __init__(
        self,
        called: Callable[[nn.Module], bool],
        mine: Callable[[], bool] = lambda: True,
        quietly: Callable[[Callable[..., Any]], Callable[..., Any]] = _as_it_is,
        notes: list[str] | None = None,
    ) -> None:
        """Nothing stands anywhere yet.

        Args:
            called: is told of the module before its call runs; returns whether to wait for another one after it.
            mine: whether calls on this thread count.
            quietly: makes a fenced call of what runs on the user's thread, such as `Fence.quietly`.
            notes: takes a sentence where it could not be taken off, see `Patches`.
        """
        self._called, self._mine = called, mine
        self._begins, self._ends = quietly(self.hear), quietly(self.wait)
        self._notes = notes
        self._patches: Patches | None = None
        self._made: tuple[Any, Callable[..., Any]] | None = None
        """What it stands for, and the stand-in: one for all waits, since Dynamo compiles each anew that it meets."""
        self._over = False

    @property
    def waits(self) -> bool:
        """Whether the stand-in is on."""
        return self._patches is not None

    def wait(self) -> None:
        """Puts the stand-in on, if it is not on and was not ended."""
        if self._patches is None and not self._over:
            self._patches = Patches(self._notes)
            self._patches.wrap(nn.Module, "__call__", self._stand_in)

    def off(self) -> None:
        """Takes the stand-in off until the next `wait`."""
        if self._patches is not None:
            self._patches.restore()  # first: what fails is tried once more
            self._patches = None

    def end(self) -> None:
        """Takes the stand-in off for good; a copy of it that other code has kept only calls what it stands for."""
        self._over = True
        self.off()

    def _stand_in(self, original: Callable[..., Any]) -> Callable[..., Any]:
        if self._made is None or self._made[0] is not original:
            self._made = original, through(original, self._around(original))
        return self._made[1]

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            plain = self._made is not None and type(module).__call__ is self._made[1]
            told: tuple[bool] | None = self._begins(module)
            if told is None:
                return original(module, *args, **kwargs)
            try:
                # Who was told may have put something on this module's class: its call goes through that, too.
                return (type(module).__call__ if plain else original)(module, *args, **kwargs)
            finally:
                if told[0]:
                    self._ends()

        return call

    def hear(self, module: nn.Module) -> tuple[bool] | None:
        """Takes the stand-in off and tells of a module whose call begins; for calls that go past the stand-in, too.

        Returns:
            None where the call does not count; else whether to wait again when it has ended.
        """
        if self._patches is None or not self._mine() or _tracing() or torch.compiler.is_compiling():
            return None
        if isinstance(module, torch.jit.ScriptModule) or not any(True for _ in module.parameters()):
            return None
        self.off()
        return (self._called(module),)

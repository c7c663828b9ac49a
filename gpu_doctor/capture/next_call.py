"""A stand-in on `nn.Module.__call__` that waits for the next outermost module and takes itself off when that is called.

It comes off before the module's inside runs: no submodule goes through it, and nothing that is compiled in there is
traced with it. torch's own global hooks would make a compiled model warn, and have every compiled function checked anew
whenever one comes or goes; this stand-in leaves the graphs of a compiled step as they are (see `graphs.through`).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch import nn

from gpu_doctor.capture.graphs import through
from gpu_doctor.capture.patching import Patches

KEPT_BY_TORCH: Final = ("torch._dynamo.utils", "torch._dynamo.variables.nn_module")
"""Modules that keep what stands at `nn.Module.__call__` when they are imported, as `unpatched_nn_module_call`: torch
imports them when a process makes its first optimizer, which may be while the stand-in is on."""
_Call = TypeVar("_Call", bound=Callable[..., Any])
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling


def _as_it_is(call: _Call) -> _Call:
    return call


class NextCall:
    """Tells of the next outermost module with parameters that is called; off until `wait`."""

    def __init__(
        self,
        called: Callable[[nn.Module], bool],
        mine: Callable[[], bool],
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
        self._called, self._mine, self._quietly = called, mine, quietly
        self._begins, self._ends = quietly(self.hear), quietly(self.wait)
        self._notes = notes
        self._patches: Patches | None = None
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}
        """What each stand-in stands for: one for all waits, since Dynamo compiles each anew that it meets."""
        self._over = False
        self._lock = threading.RLock()
        """Optimizers are made, and modules called, on any thread."""

    @property
    def waits(self) -> bool:
        """Whether the stand-in is on."""
        return self._patches is not None

    def wait(self) -> None:
        """Puts the stand-in on, if it is not on and was not ended."""
        with self._lock:
            if self._patches is None and not self._over:
                self._patches = Patches(self._notes)
                self._patches.wrap(nn.Module, "__call__", self._stand_in)
                self._patches.wrap(torch, "compile", self._handed_over)

    def off(self) -> None:
        """Takes the stand-in off until the next `wait`."""
        with self._lock:
            if self._patches is not None:
                self._patches.restore()  # first: what fails, or is interrupted, is tried once more
                self._hand_back()
                self._patches = None

    def end(self) -> None:
        """Takes the stand-in off for good; a copy of it that other code has kept only calls what it stands for."""
        self._over = True
        self.off()
        now = vars(nn.Module)["__call__"]
        if self._ours(now):  # other code had put it by, and put it back
            nn.Module.__call__ = self._made[now]  # type: ignore[method-assign]
        self._called, self._mine = (lambda _: False), (lambda: False)
        self._begins = self._ends = lambda *_: None

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

    def _hand_back(self) -> None:
        """Gives torch what the stand-in stood for, where torch has kept it meanwhile."""
        for name in KEPT_BY_TORCH:
            kept = vars(sys.modules.get(name, object)).get("unpatched_nn_module_call")
            if kept is not None and self._ours(kept):
                sys.modules[name].unpatched_nn_module_call = self._made[kept]  # type: ignore[attr-defined]

    def _ours(self, call: Any) -> bool:
        """Whether this is a stand-in; by identity, since other code may have put anything there."""
        return any(call is one for one in self._made)

    def _stand_in(self, original: Callable[..., Any]) -> Callable[..., Any]:
        stand_in = next((made for made, stood_for in self._made.items() if stood_for is original), None)
        if stand_in is None:
            stand_in = through(original, self._around(original))
            self._made[stand_in] = original
        return stand_in

    def _handed_over(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`torch.compile`, which may keep the call of the module that it is handed: without ours."""
        off, wait = self._quietly(self.off), self._quietly(self.wait)

        @functools.wraps(original)
        def compiling(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if _dynamo() or not self.waits or not self._mine():
                return original(*args, **kwargs)
            off()
            try:
                return original(*args, **kwargs)
            finally:
                wait()

        return compiling

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            plain = self._ours(type(module).__call__)
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

"""A stand-in on `nn.Module.__call__` that waits for the next call of an outermost module, and then takes itself off.

It comes off before the module's own code runs: no submodule goes through it, and torch does not trace it in compiled
code. torch's own global hooks would make a compiled model warn, and torch would check every compiled function again
whenever a hook comes or goes; this stand-in leaves the graphs of a compiled step as they are (see `graphs.through`).
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
"""Modules that store `nn.Module.__call__` as `unpatched_nn_module_call` when imported: torch imports them as a process
makes its first optimizer, which may be while the stand-in is on."""
_Call = TypeVar("_Call", bound=Callable[..., Any])
_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]
_dynamo: Callable[[], bool] = torch.compiler.is_dynamo_compiling


def _as_it_is(call: _Call) -> _Call:
    """Returns `call` itself, without a fence."""
    return call


class NextCall:
    """Reports the next call of an outermost module with parameters; off until `wait`."""

    def __init__(
        self,
        called: Callable[[nn.Module], bool],
        mine: Callable[[], bool],
        quietly: Callable[[Callable[..., Any]], Callable[..., Any]] = _as_it_is,
        notes: list[str] | None = None,
    ) -> None:
        """Puts no stand-in on yet.

        Args:
            called: called with the module before its call runs; returns True to wait for another call after it.
            mine: returns True if calls on the present thread count.
            quietly: fences a function that runs on the user's thread, such as `Fence.quietly`.
            notes: list for a sentence if the stand-in cannot be taken off, see `Patches`.
        """
        self._called, self._mine, self._quietly = called, mine, quietly
        self._begins, self._ends = quietly(self.hear), quietly(self.wait)
        self._notes = notes
        self._patches: Patches | None = None
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Original of each stand-in. A stand-in is used for all waits, since Dynamo would compile for each new one."""
        self._over = False
        self._lock = threading.RLock()
        """Guards the patches: optimizers are created, and modules called, on any thread."""

    @property
    def waits(self) -> bool:
        """True if the stand-in is on."""
        return self._patches is not None

    def wait(self) -> None:
        """Puts the stand-in on, if it is not on and was not ended."""
        with self._lock:
            if self._patches is None and not self._over:
                self._patches = Patches(self._notes)
                self._patches.wrap(nn.Module, "__call__", self._stand_in)
                self._patches.wrap(torch, "compile", self._compile_without_stand_in)

    def off(self) -> None:
        """Takes the stand-in off until the next `wait`."""
        with self._lock:
            if self._patches is not None:
                self._patches.restore()  # first: if it fails or is interrupted, `off` can be called again
                self._restore_torch_reference()
                self._patches = None

    def end(self) -> None:
        """Takes the stand-in off for good; a copy that other code still holds only calls the original from now on."""
        self._over = True
        self.off()
        now = vars(nn.Module)["__call__"]
        if self._is_stand_in(now):  # other code had saved the stand-in, and restored it
            nn.Module.__call__ = self._made[now]  # type: ignore[method-assign]
        self._called, self._mine = (lambda _: False), (lambda: False)
        self._begins = self._ends = lambda *_: None

    def hear(self, module: nn.Module) -> tuple[bool] | None:
        """Takes the stand-in off and reports a module whose call begins; also for calls that bypass the stand-in.

        Returns:
            None if the call does not count; else a tuple of True if another call is to be waited for after it.
        """
        if self._patches is None or not self._mine() or _tracing() or torch.compiler.is_compiling():
            return None
        if isinstance(module, torch.jit.ScriptModule) or not any(True for _ in module.parameters()):
            return None
        self.off()
        return (self._called(module),)

    def _restore_torch_reference(self) -> None:
        """Replaces the stand-in by the original where torch has stored it meanwhile."""
        for name in KEPT_BY_TORCH:
            reference = vars(sys.modules.get(name, object)).get("unpatched_nn_module_call")
            if reference is not None and self._is_stand_in(reference):
                sys.modules[name].unpatched_nn_module_call = self._made[reference]  # type: ignore[attr-defined]

    def _is_stand_in(self, call: Any) -> bool:
        """True if `call` is a stand-in of ours, by identity, since other code may have put any object there."""
        return any(call is stand_in for stand_in in self._made)

    def _stand_in(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the stand-in for `original`, which is made once."""
        stand_in = next((made for made, stood_for in self._made.items() if stood_for is original), None)
        if stand_in is None:
            stand_in = through(original, self._around(original))
            self._made[stand_in] = original
        return stand_in

    def _compile_without_stand_in(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a `torch.compile` that takes the stand-in off meanwhile, as torch may store the module's call."""
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
        """Returns a module call that reports its module first, and waits for another afterwards if that is wanted."""

        def call(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            plain = self._is_stand_in(type(module).__call__)
            wanted: tuple[bool] | None = self._begins(module)
            if wanted is None:
                return original(module, *args, **kwargs)
            try:
                # `called` may have patched this module's class: the call must go through that patch, too.
                return (type(module).__call__ if plain else original)(module, *args, **kwargs)
            finally:
                if wanted[0]:
                    self._ends()

        return call

"""Keeps torch.compile from tracing our hooks when the user compiles a whole step with its backward and optimizer.

The compiler would compile our wrappers with the step, and again for every counter that they read: the step took
several times as long, and torch's warnings named our files. Since the compiler skips them, each wrapper breaks the
graph only where torch's own backward breaks it already. The call of a module's forward is different: it is traced.
"""

from __future__ import annotations

import contextlib
import pkgutil
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import torch

from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.graphs import through
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.stand_ins import Seam, StandIn
from gpu_doctor.capture.taps.forward import recording_call, recording_forward
from gpu_doctor.capture.taps.tap import TapScope

TRACED: Final = ("capture.graphs", "capture.stand_ins", "capture.taps.forward", "trials")
"""Modules and packages of ours with code that the compiler traces into the user's graph."""
_PARTS: Final[tuple[Callable[..., Any], ...]] = (
    *(through(len, len), StandIn.__call__, StandIn.__eq__, StandIn.__hash__, Seam.__init__, Seam.__get__),
    *(recording_call, recording_forward),
)
"""Functions of these modules that must not be compiled on their own, when skipped code calls them."""
_skipped: Final[list[str]] = []
"""Names of our packages and modules that the compiler was told to skip, filled once in a process."""


def leave_us_out(fence: Fence, patches: Patches, there: Callable[[], None] = lambda: None) -> None:
    """Makes the compiler skip our code: at once if it is imported, else when the user's code first calls it.

    We do not import it ourselves, which takes 1 s.

    Args:
        fence: The fence of the run.
        patches: The patches of the run.
        there: Called once the compiler is imported, and after each call of `torch.compile`.
    """
    if _skip_us():
        there()
    patches.wrap(torch, "compile", partial(_compiling, fence, there))


def _compiling(fence: Fence, there: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `torch.compile`, which imports the compiler: then the compiler skips our code, and `there` is called."""

    def ends(token: bool, result: Any) -> None:
        if _skip_us():
            there()

    return fence.around_in_graphs(original, lambda *args, **kwargs: True, ends)


def _skip_us() -> bool:
    """Makes the compiler skip our code, once in a process; returns False if the compiler is not imported yet."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch, "_dynamo"):
        return False
    if not _skipped:
        _skipped.extend(skipped_names())
        with contextlib.suppress(Exception):  # private names; without them, compiled steps contain our code
            rules = torch._dynamo.trace_rules
            rules.SKIP_DIRS.extend(map(_place, _skipped))
            rules._recompile_re()  # once: its `add` would rebuild the expression of all folders for each name (2 ms)
            for part in _PARTS:
                torch._dynamo.eval_frame.skip_code(part.__code__)
    return True


def _place(name: str) -> str:
    """Returns the folder of a package or the file of a module, as the compiler's list of skipped code has them."""
    spec = find_spec(name)
    return spec.origin.removesuffix("__init__.py") if spec is not None and spec.origin is not None else name


def around_compiling(scope: TapScope, begins: Callable[..., None], ends: Callable[..., None]) -> None:
    """Registers two functions that the compiler calls before and after each compilation, unless it has them already."""
    handler = sys.modules["torch._dynamo"].callback_handler
    for callbacks, ours in ((handler.start_callbacks, begins), (handler.end_callbacks, ends)):
        if not any(getattr(callback, "__wrapped__", None) == ours for callback in callbacks):
            _register(scope, callbacks, scope.recorder.fence.quietly(ours))


def _register(scope: TapScope, callbacks: list[Any], callback: Callable[..., Any]) -> None:
    """Adds a callback to the compiler's list until the run ends."""

    def remove() -> None:
        with contextlib.suppress(ValueError):  # a reset of the compiler has removed it
            callbacks.remove(callback)

    scope.patches.hook("compiling", remove)
    callbacks.append(callback)


def skipped_names() -> list[str]:
    """Returns the names of our largest packages and modules that contain nothing of `TRACED`."""
    ours = __name__.partition(".")[0]
    traced = [f"{ours}.{name}" for name in TRACED]
    found, packages = list[str](), [ours]
    while packages:
        package = packages.pop()
        for _, name, _ in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
            if any(inner.startswith(f"{name}.") for inner in traced):
                packages.append(name)
            elif name not in traced:
                found.append(name)
    return found

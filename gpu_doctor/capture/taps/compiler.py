"""Keeps torch.compile from tracing our hooks when the user compiles a whole step: backward, optimizer and all.

What stands around these would be compiled with the step, and made anew for every count that it reads: the step took
several times as long, and torch warned with names of our files. Left out, each call of ours breaks the graph where
torch's own backward does already. A module's forward is another matter: a graph goes right through our call of it.
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
from gpu_doctor.capture.taps.forward import heard_by_name, heard_call
from gpu_doctor.capture.taps.tap import TapScope

GONE_THROUGH: Final = ("capture.graphs", "capture.stand_ins", "capture.taps.forward", "trials")
"""Modules and packages of ours in which there is code that a graph goes through."""
_PARTS: Final[tuple[Callable[..., Any], ...]] = (
    *(through(len, len), StandIn.__call__, StandIn.__eq__, StandIn.__hash__, Seam.__init__, Seam.__get__),
    *(heard_call, heard_by_name),
)
"""What of it is never compiled for itself, where code that the compiler leaves out calls it."""
_known: Final[list[str]] = []


def leave_us_out(fence: Fence, patches: Patches, there: Callable[[], None] = lambda: None) -> None:
    """Tells the compiler at once where it is there, else as soon as the code first uses it: importing it takes 1 s.

    Args:
        fence: of the run.
        patches: of the run.
        there: called when it is there, and whenever the code uses it.
    """
    if _told():
        there()
    patches.wrap(torch, "compile", partial(_compiling, fence, there))


def _compiling(fence: Fence, there: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    def ends(token: bool, result: Any) -> None:
        if _told():
            there()

    return fence.around_in_graphs(original, lambda *args, **kwargs: True, ends)


def _told() -> bool:
    """Whether the compiler is there, and knows; once in a process, for that is how long it remembers."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch, "_dynamo"):
        return False
    if not _known:
        _known.extend(left_out())
        with contextlib.suppress(Exception):  # private names; without them steps are compiled with ours in them
            rules = torch._dynamo.trace_rules
            rules.SKIP_DIRS.extend(map(_place, _known))
            rules._recompile_re()  # once: its `add` makes the expression of all folders anew for each name (2 ms)
            for part in _PARTS:
                torch._dynamo.eval_frame.skip_code(part.__code__)
    return True


def _place(name: str) -> str:
    """The folder of a package, the file of a module, as the compiler names them."""
    spec = find_spec(name)
    return spec.origin.removesuffix("__init__.py") if spec is not None and spec.origin is not None else name


def around_compiling(scope: TapScope, begins: Callable[..., None], ends: Callable[..., None]) -> None:
    """Has two functions called before the compiler reads code and after it, unless they are already."""
    handler = sys.modules["torch._dynamo"].callback_handler
    for calls, ours in ((handler.start_callbacks, begins), (handler.end_callbacks, ends)):
        if not any(getattr(one, "__wrapped__", None) == ours for one in calls):
            _put(scope, calls, scope.recorder.fence.quietly(ours))


def _put(scope: TapScope, calls: list[Any], call: Callable[..., Any]) -> None:
    def remove() -> None:
        with contextlib.suppress(ValueError):  # a reset has taken it off
            calls.remove(call)

    scope.patches.hook("compiling", remove)
    calls.append(call)


def left_out() -> list[str]:
    """The largest packages and modules of ours, by name, in which there is nothing of `GONE_THROUGH`."""
    ours = __name__.partition(".")[0]
    gone_through = [f"{ours}.{name}" for name in GONE_THROUGH]
    found, packages = list[str](), [ours]
    while packages:
        package = packages.pop()
        for _, name, _ in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
            if any(one.startswith(f"{name}.") for one in gone_through):
                packages.append(name)
            elif name not in gone_through:
                found.append(name)
    return found

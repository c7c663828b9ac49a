"""Keeps torch.compile from tracing our hooks when the user compiles a whole step: backward, optimizer and all.

What stands around these would be compiled with the step, and made anew for every count that it reads: the step took
several times as long, and torch warned with names of our files. Left out, each call of ours breaks the graph where
torch's own backward does already. A module's forward is another matter: a graph goes right through our call of it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from gpu_doctor.capture.fence import Fence
from gpu_doctor.capture.patching import Patches

_ROOM: Final = __name__.rpartition(".taps.")[0]
LEFT_OUT: Final = (
    "taps.tap",
    "taps.optimizer",
    "taps.backward",
    "taps.discovery",
    "taps.found_models",
    "taps.parameters",
    "taps.unused_gradients",
    "taps.unused_logits",
    "taps.checkpointing",
    "describe.models",
    "describe.names",
    "describe.backward_graph",
    "describe.backward_products",
    "describe.broadcast_pairs",
    "describe.loss_by_hand",
    "describe.nodes",
    "describe.unused_logits",
    "lines.stacks",
    "fence",
    "next_call",
    "recorder",
    "events",
    "held",
    "spans",
    "step_clock",
    "step_table",
)
"""Not `graphs` and `taps.forward`: a graph goes right through what these stand around."""
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
        _known.extend(LEFT_OUT)
        with contextlib.suppress(Exception):  # a private name; without it steps are compiled with ours in them
            for name in LEFT_OUT:
                torch._dynamo.trace_rules.add(f"{_ROOM}.{name}")
    return True

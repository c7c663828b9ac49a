"""Bills what a wrapping optimizer does before the wrapped one steps to the backward, whose gradients it makes ready.

Opacus clips the gradients of every sample there, and adds noise. Such a class is an Optimizer by name alone, torch's
hooks do not hear its `step`; it is found on the stack when the wrapped one steps. What it does afterwards (the slow
weights of Lookahead) is left in `other`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from types import FrameType
from typing import Any, Final

import torch

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps.sleepers import StandingWrapper
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import BACKWARD, OTHER

LOOKED_AT: Final = 8
"""Optimizer steps whose stack is looked at: optimizers that take turns are all met by then."""
_DEEPEST: Final = 12
"""Frames between an optimizer's step and that of one around it: the hook, torch's own wrapper, a scheduler's."""
_PASSES_ON: Final = tuple(name for one in FRAMEWORKS if one.optimizer_passes_on for name in one.packages)
_dynamo: Callable[[], bool] = getattr(torch.compiler, "is_dynamo_compiling", None) or (lambda: False)


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Wrappers on the `step` of optimizers that wrap others; none where there is no such thing."""
    ledger, pulse = scope.recorder.ledger, scope.recorder.pulse
    rests = ledger.steady.rests
    inside: list[int | None] = []
    """Of each step of a wrapping one that runs: the phase to go back to from what follows the wrapped one's."""
    known: set[type] = set()
    left = LOOKED_AT

    def billed(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            # A closure is the loop's own code.
            if args or kwargs or _dynamo() or get_ident() != pulse.thread or not ledger.started:
                return original(self, *args, **kwargs)
            before = ledger.switch(BACKWARD)
            inside.append(None)
            try:
                return original(self)
            finally:
                after = inside.pop()
                if after is not None:
                    ledger.switch(after)
                ledger.switch(before)

        return step

    def stepped() -> None:
        nonlocal left
        if inside:
            if inside[-1] is None:
                inside[-1] = ledger.switch(OTHER)
            return
        if left <= 0:
            return
        left -= 1
        kind = _around(sys._getframe(1))
        if kind is not None and kind not in known:
            known.add(kind)
            rests.sleepers.append(StandingWrapper(scope.patches, kind, "step", billed, lambda: rests.has(BACKWARD)))
        if left <= 0 and not known:
            scope.stepped.remove(stepped)

    scope.stepped.append(stepped)
    try:
        yield
    finally:
        rests.over_for_good()


def _around(frame: FrameType | None) -> type | None:
    """The class whose `step`, unheard by torch's hooks, runs on a stack below some optimizer's; None if none does."""
    for _ in range(_DEEPEST):
        if frame is None:
            break
        if frame.f_code.co_name == "step":
            owner = frame.f_locals.get("self")
            kind = next((one for one in type(owner).__mro__ if "step" in vars(one)), object)
            passes_on = kind.__module__.partition(".")[0] in _PASSES_ON
            heard = passes_on or getattr(vars(kind).get("step"), "hooked", False)
            if isinstance(owner, torch.optim.Optimizer) and not heard:
                return kind
        frame = frame.f_back
    return None

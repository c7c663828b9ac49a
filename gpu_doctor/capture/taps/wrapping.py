"""Bills what a wrapping optimizer does before the wrapped one steps to the backward, whose gradients it makes ready.

Opacus clips the gradients of every sample there, and adds noise. Such a class is an Optimizer by name alone, torch's
hooks do not hear its `step`; it is found on the stack when the wrapped one steps. What it does afterwards (the slow
weights of Lookahead) is left in `other`.
"""

from __future__ import annotations

import functools
import sys
from types import FrameType
from typing import Any, Final

import torch

from gpu_doctor.capture.events import DONE, PHASE
from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.lines.stacks import outwards
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import BACKWARD, OTHER

LOOKED_AT: Final = 8
"""Optimizer steps whose stack is looked at: optimizers that take turns are all met by then."""
_DEEPEST: Final = 12
"""Frames between an optimizer's step and that of one around it: the hook, torch's own wrapper, a scheduler's."""
_PASSES_ON: Final = tuple(name for one in FRAMEWORKS if one.optimizer_passes_on for name in one.packages)


def tap(scope: TapScope) -> None:
    """Wrappers on the `step` of optimizers that wrap others; none where there is no such thing."""
    recorder = scope.recorder
    around = functools.partial(recorder.fence.around_in_graphs, training_thread_only=True)
    inside: list[bool] = []
    """Of each step of a wrapping one that runs: whether the wrapped one has stepped."""
    known: set[type] = set()
    left = LOOKED_AT

    def begins(optimizer: Any, /, *args: Any, **kwargs: Any) -> bool | None:
        # A closure is the loop's own code.
        if args or kwargs:
            return None
        recorder.event(PHASE, BACKWARD)
        inside.append(False)
        return True

    def ends(token: bool, result: Any) -> None:
        if inside.pop():
            recorder.event(DONE)
        recorder.event(DONE)

    def stepped() -> None:
        nonlocal left
        if inside:
            if not inside[-1]:
                inside[-1] = True
                recorder.event(PHASE, OTHER)
            return
        if left <= 0:
            return
        left -= 1
        kind = _around(sys._getframe(1))
        if kind is not None and kind not in known:
            known.add(kind)
            scope.patches.wrap(kind, "step", lambda original: around(original, begins, ends))
        if left <= 0 and not known:
            scope.stepped.leave(stepped)

    scope.stepped.append(stepped)


def _around(frame: FrameType | None) -> type | None:
    """The class whose `step`, unheard by torch's hooks, runs on a stack below some optimizer's; None if none does."""
    for one in outwards(frame, _DEEPEST):
        if one.f_code.co_name == "step":
            owner = one.f_locals.get("self")
            kind = next((each for each in type(owner).__mro__ if "step" in vars(each)), object)
            passes_on = kind.__module__.partition(".")[0] in _PASSES_ON
            heard = passes_on or getattr(vars(kind).get("step"), "hooked", False)
            if isinstance(owner, torch.optim.Optimizer) and not heard:
                return kind
    return None

"""Hears the steps of optimizers that are not torch's and call none of its hooks, such as fastai's.

Their steps are heard as any; what is known of torch's optimizers (their options, knobs for them) holds for none of
them, so they are not listed among the setup's optimizers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps.tap import TapScope

_KINDS: Final = tuple(kind for one in FRAMEWORKS for kind in one.optimizers)
"""Module and name of each class."""


def hear(
    scope: TapScope,
    stepping: Callable[..., Any],
    stepped: Callable[..., None],
    zeroing: Callable[[Callable[..., None]], Callable[..., None]],
) -> None:
    """Has them heard as torch's are, those whose library is imported by now or when a loader is first pulled from.

    Args:
        scope: of the run. stepping, stepped: the hooks before and after a step of torch's optimizers.
        zeroing: makes the wrapper of a `zero_grad`.
    """
    pulse, rests = scope.recorder.pulse, scope.recorder.ledger.steady.rests
    heard: set[type] = set()

    def step_of(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if pulse.resting and get_ident() == pulse.thread:
                rests.steps.put(self)
                return original(self, *args, **kwargs)
            stepping(self, (self,), {})
            result = original(self, *args, **kwargs)
            stepped(self, (self,), {})
            return result

        return step

    def meet() -> None:
        for module, name in _KINDS:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and kind not in heard:
                heard.add(kind)
                scope.patches.wrap(kind, "step", step_of)
                scope.patches.wrap(kind, "zero_grad", zeroing)

    meet()
    scope.pulled.append(meet)

"""Hears the steps of optimizers that are not torch's and call none of its hooks, such as fastai's.

Their steps are heard as any; what is known of torch's optimizers (their options, knobs for them) holds for none of
them, so they are not listed among the setup's optimizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps.tap import TapScope

_KINDS: Final = tuple(kind for one in FRAMEWORKS for kind in one.optimizers)
"""Module and name of each class."""


def hear(
    scope: TapScope,
    begun: Callable[[Any, Any, Any], Any],
    ended: Callable[[Any, Any, Any], None],
    zeroing: Callable[[Callable[..., None]], Callable[..., None]],
) -> None:
    """Has them heard as torch's are, those whose library is imported by now or when a loader is first pulled from.

    Args:
        scope: of the run.
        begun: torch's hook before a step.
        ended: torch's hook after a step.
        zeroing: makes the wrapper of a `zero_grad`.
    """
    heard: set[type] = set()

    def step_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def begins(optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
            begun(optimizer, (optimizer,), {})
            return optimizer

        def ends(optimizer: Any, result: Any) -> None:
            ended(optimizer, (optimizer,), {})

        # As with torch's own hooks, the end of a step that raised is not heard.
        return scope.recorder.fence.around(original, begins, ends, lambda optimizer, error: None)

    def meet() -> None:
        for module, name in _KINDS:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and kind not in heard:
                heard.add(kind)
                scope.patches.wrap(kind, "step", step_of)
                scope.patches.wrap(kind, "zero_grad", zeroing)

    meet()
    scope.pulled.append(meet)

"""Records the steps of optimizers that are not torch's and call none of its hooks, such as fastai's.

Their steps are recorded like any other. They are not listed among the setup's optimizers, because the options and
knobs of torch's optimizers do not apply to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps.tap import TapScope

_KINDS: Final = tuple(kind for framework in FRAMEWORKS for kind in framework.optimizers)
"""Module and name of each optimizer class."""


def install(
    scope: TapScope,
    begun: Callable[[Any, Any, Any], Any],
    ended: Callable[[Any, Any, Any], None],
    zeroing: Callable[[Callable[..., None]], Callable[..., None]],
) -> None:
    """Wraps `step` and `zero_grad` of these optimizers, now and again when a loader is first iterated.

    Libraries that are not imported by then are left out.

    Args:
        scope: The scope of the run.
        begun: The hook called before a step, in the form of torch's.
        ended: The hook called after a step, in the form of torch's.
        zeroing: Returns the wrapper of a `zero_grad`.
    """
    wrapped: set[type] = set()

    def step_of(original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps a `step`: calls the two hooks around it."""

        def begins(optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
            begun(optimizer, (optimizer,), {})
            return optimizer

        def ends(optimizer: Any, result: Any) -> None:
            ended(optimizer, (optimizer,), {})

        # As with torch's own hooks, the end of a step that raised is not recorded.
        return scope.recorder.fence.around(original, begins, ends, lambda optimizer, error: None)

    def wrap_imported() -> None:
        for module, name in _KINDS:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and kind not in wrapped:
                wrapped.add(kind)
                scope.patches.wrap(kind, "step", step_of)
                scope.patches.wrap(kind, "zero_grad", zeroing)

    wrap_imported()
    scope.pulled.append(wrap_imported)

"""Hears the steps of optimizers that are not torch's and call none of its hooks, such as fastai's.

Their steps are heard as any; what is known of torch's optimizers (their options, knobs for them) holds for none of
them, so they are not listed among the setup's optimizers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from gpu_doctor.capture.frameworks import FRAMEWORKS
from gpu_doctor.capture.taps.tap import TapScope

_KINDS: Final = tuple(kind for one in FRAMEWORKS for kind in one.optimizers)
"""Module and name of each class."""


class Hooks(Protocol):
    """What the tap of torch's own optimizers does around a step."""

    def begins(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """A step begins."""

    def ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """It has ended."""

    def zeroing(self, original: Callable[..., None]) -> Callable[..., None]:
        """Makes the wrapper of a `zero_grad`."""


def hear(scope: TapScope, hooks: Hooks) -> None:
    """Has them heard as torch's are, those whose library is imported by now or when a loader is first pulled from.

    Args:
        scope: of the run.
        hooks: of torch's optimizers.
    """
    heard: set[type] = set()

    def step_of(original: Callable[..., Any]) -> Callable[..., Any]:
        def begins(optimizer: Any, /, *args: Any, **kwargs: Any) -> Any:
            hooks.begins(optimizer, (optimizer,), {})
            return optimizer

        def ends(optimizer: Any, result: Any) -> None:
            hooks.ended(optimizer, (optimizer,), {})

        # As with torch's own hooks, the end of a step that raised is not heard.
        return scope.recorder.fence.around(original, begins, ends, lambda optimizer, error: None)

    def meet() -> None:
        for module, name in _KINDS:
            kind = getattr(sys.modules.get(module), name, None)
            if isinstance(kind, type) and kind not in heard:
                heard.add(kind)
                scope.patches.wrap(kind, "step", step_of)
                scope.patches.wrap(kind, "zero_grad", hooks.zeroing)

    meet()
    scope.pulled.append(meet)

"""Keeps our wrapper out of copies of an observed module, where it would run the original module.

torch leaves a module's compiled call, in whose place our wrapper stands, out of its own copies and pickles. A module's
own `__deepcopy__` or `__getstate__` does not, and neither does `DataParallel`: they copy the module's dict as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.fence import Fence


class Call(functools.partial[Any]):
    """Wrapper of a module's call. Its copy or pickle is None, the value that an unobserved module has in this place.

    It is a `partial` because calling one is C code, which adds only a tenth of a microsecond to a forward.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def replicating(fence: Fence, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `nn.Module._replicate_for_data_parallel`: replicas get the module's own compiled call in place of ours."""

    def begins(module: nn.Module) -> bool:
        return True

    def made(token: bool, replica: Any) -> None:
        call = vars(replica).get(models.CALL) if replica is not None else None
        if isinstance(call, Call):
            vars(replica)[models.CALL] = getattr(call, models.OURS, None)

    return fence.around_in_graphs(original, begins, made)

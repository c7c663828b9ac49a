"""Keeps our wrapper out of copies of a watched module (deepcopy, pickle): it would run the original module.

torch leaves the place of a module's compiled call out of its own copies and pickles. A module's own `__deepcopy__` or
`__getstate__` does not, and neither do the replicas of `DataParallel`: they take the module's dict as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.fence import Fence


class Call(functools.partial[Any]):
    """A module's call of ours; a copy or a pickle of it is None, which is what stands on a module without us.

    A `partial`, for calling it is C code: it adds a tenth of a microsecond to a forward.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def replicating(fence: Fence, original: Callable[..., Any]) -> Callable[..., Any]:
    """`nn.Module._replicate_for_data_parallel`, whose replicas get what stood on the module before us."""

    def begins(module: nn.Module) -> bool:
        return True

    def made(token: bool, replica: Any) -> None:
        call = vars(replica).get(models.CALL) if replica is not None else None
        if isinstance(call, Call):
            vars(replica)[models.CALL] = getattr(call, models.OURS, None)

    return fence.around_in_graphs(original, begins, made)

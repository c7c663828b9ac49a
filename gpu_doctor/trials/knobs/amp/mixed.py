"""Turns the knob `amp` to half precision: the trained modules' forwards and, in fp16, the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from gpu_doctor.trials.knobs.amp.autocast import autocasting
from gpu_doctor.trials.knobs.amp.loss_scaling import LossScaling, loss_scaling
from gpu_doctor.trials.knobs.knob import TrialScope

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


@contextmanager
def mixed_precision(dtype: torch.dtype, scope: TrialScope, allow: Any = None) -> Iterator[LossScaling | None]:
    """Runs trained modules in `dtype`; with fp16, scales the loss too. Yields the scaling, None for bf16."""
    with ExitStack() as stack:
        scaling = stack.enter_context(loss_scaling(LossScaling())) if dtype == torch.float16 else None
        stack.enter_context(autocasting(dtype, scope, allow, scaling.meet if scaling else None))
        yield scaling
        if scaling is not None and scaling.skipped:
            scope.notes.append(f"fp16 skipped {scaling.skipped} steps while it searched for the loss scale.")

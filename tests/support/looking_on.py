"""What a knob has really turned, seen from inside of a trial's candidate by somebody who knows nothing of knobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from gpu_doctor.trials.case import Case


@dataclass
class Seen:
    """In the candidate's steps; a list has one entry a step, or a convolution."""

    autocast: list[Any] = field(default_factory=list)
    """Dtype in convolutions, None = none."""
    results: list[torch.dtype] = field(default_factory=list)
    """Of convolutions."""
    matmul: list[str] = field(default_factory=list)
    convolutions: list[bool] = field(default_factory=list)
    """TF32 allowed,"""
    benchmark: list[bool] = field(default_factory=list)
    fused: list[Any] = field(default_factory=list)
    channels_last: list[bool] = field(default_factory=list)
    """The first convolution's weight."""
    pinned: list[bool] = field(default_factory=list)
    """The loader's."""


@contextmanager
def looking(case: Case, space: dict[str, Any], at_modules: bool = True) -> Iterator[Seen]:
    """Looks into the candidates of trials inside the context.

    Args:
        case: whose. space: its namespace, with `net`, `opt` and `loader`.
        at_modules: with a hook on every module, which a compiled model had better be without.
    """
    seen, candidate, outer = Seen(), [False], case.on_begin

    def began(recorder: Any, role: str) -> None:
        candidate[0] = role == "candidate"

    def called(module: nn.Module, args: Any, output: Any) -> None:
        if candidate[0] and isinstance(module, nn.Conv2d):
            device = output.device.type
            seen.autocast.append(torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None)
            seen.results.append(output.dtype)

    def stepped(*of_the_optimizer: Any) -> None:
        if candidate[0]:
            seen.matmul.append(torch.get_float32_matmul_precision())
            seen.convolutions.append(torch.backends.cudnn.allow_tf32)
            seen.benchmark.append(torch.backends.cudnn.benchmark)
            seen.fused.append(space["opt"].param_groups[0].get("fused"))
            seen.channels_last.append(space["net"][0].weight.is_contiguous(memory_format=torch.channels_last))
            seen.pinned.append(space["loader"].pin_memory)

    handles = [register_optimizer_step_post_hook(stepped)]
    if at_modules:
        handles.append(register_module_forward_hook(called))
    case.on_begin = began
    try:
        yield seen
    finally:
        case.on_begin = outer
        for handle in handles:
            handle.remove()

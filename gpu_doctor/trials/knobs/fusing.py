"""Turns the knob `fused_optimizer` on existing optimizers for a while, and puts them back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gpu_doctor.capture import Patches
from gpu_doctor.capture.describe import named, optimizer_facts
from gpu_doctor.trials.knobs.knob import TrialScope

_FLAG: Final = "_step_supports_amp_scaling"
"""Attribute of a fused optimizer: its kernel takes GradScaler's factor and its check for infinities."""


class Fusing:
    """Turns every optimizer before it steps; `restore` gives its groups their options back."""

    def __init__(self, value: bool, notes: list[str]) -> None:
        """`notes`: takes a sentence on each optimizer that cannot be turned."""
        self._value, self._notes = value, notes
        self._turned: list[tuple[Optimizer, dict[str, Any], dict[str, Any]]] = []
        self._left: list[Optimizer] = []

    def turn(self, optimizer: Optimizer) -> None:
        """Turns the groups of an optimizer that are not turned yet; cheap where all are."""
        groups = [
            param_group for param_group in optimizer.param_groups if bool(param_group.get("fused")) is not self._value
        ]
        if not groups or any(optimizer is other for other in self._left):
            return
        if self._value and (not optimizer_facts(optimizer).can_fuse or _is_sparse(optimizer)):
            self._left.append(optimizer)
            name = type(optimizer).__name__
            self._notes.append(f"fused_optimizer did not change one {name}: torch has no fused update for it.")
            return
        for group in groups:
            self._turned.append((optimizer, group, {name: group.get(name) for name in ("fused", "foreach")}))
            group |= {"fused": self._value, "foreach": None}
            _move_steps(optimizer, group)
        vars(optimizer)[_FLAG] = self._value

    def restore(self) -> None:
        """Restores the options of every group; the optimizers' state stays."""
        for optimizer, group, kept in reversed(self._turned):
            group |= kept
            _move_steps(optimizer, group)
            vars(optimizer)[_FLAG] = bool(kept["fused"])
        self._turned.clear()


def _is_sparse(optimizer: Optimizer) -> bool:
    owned = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return any(parameter.grad is not None and parameter.grad.is_sparse for parameter in owned)


def _move_steps(optimizer: Optimizer, group: dict[str, Any]) -> None:
    """Step counters to where the update reads them: the parameter's device where it is fused, else the host."""
    for parameter in group["params"]:
        state = optimizer.state.get(parameter) or {}
        if isinstance(state.get("step"), torch.Tensor):
            device = parameter.device if group["fused"] or group.get("capturable") else "cpu"
            state["step"] = state["step"].to(device, torch.float32)


@contextmanager
def fused(value: bool, scope: TrialScope) -> Iterator[None]:
    """Fuses the updates of the loop's optimizers while the context lasts, or takes them apart."""
    fusing = Fusing(value, scope.notes)

    def make(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            fusing.turn(optimizer)

        return init

    try:
        with Patches(scope.notes) as patches:
            patches.wrap(Optimizer, "__init__", make)
            before = register_optimizer_step_pre_hook(lambda optimizer, *_: fusing.turn(optimizer))
            patches.hook("optimizer step pre-hook (fused_optimizer)", before.remove)
            for found_optimizer in named(scope.namespace, Optimizer):
                fusing.turn(found_optimizer)
            yield
    finally:
        fusing.restore()

"""Turns the knob `fused_optimizer`: the groups, flags and step counters of optimizers, and back as they were."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.utils import _foreach_utils

from gpu_doctor.capture import Patches
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.trained_modules import meet_optimizers, parameters_of

_MISSING: Final = object()
_FLAG: Final = "_step_supports_amp_scaling"
"""What a fused optimizer says of itself: its kernel takes GradScaler's factor and its finding of infinities."""
_KERNELS: Final = {
    torch.optim.Adam: "_fused_adam_",
    torch.optim.AdamW: "_fused_adamw_",
    torch.optim.SGD: "_fused_sgd_",
    torch.optim.Adagrad: "_fused_adagrad_",
}


def why_not(optimizer: Optimizer) -> str:
    """Why this optimizer's update cannot be fused, in one sentence; empty if it can."""
    name = type(optimizer).__name__
    kind = next((one for one in _KERNELS if isinstance(optimizer, one)), None)
    takes = kind is not None and "fused" in inspect.signature(kind).parameters
    if kind is None or not takes or not hasattr(torch, _KERNELS[kind]):
        return f"torch has no fused update for {name} in this version."
    if any("fused" not in group for group in optimizer.param_groups):
        return f"This {name} has no option `fused`."
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"This {name} is differentiable, and fused updates are not."
    supported = getattr(_foreach_utils, "_get_fused_kernels_supported_devices", None)
    devices = {"cuda"} if supported is None else set(supported())
    if kind is torch.optim.Adagrad:
        devices &= {"cpu"}  # its CUDA kernel is younger than the list of devices
    for parameter in parameters_of(optimizer):
        if parameter.device.type not in devices:
            return f"torch has no fused update for {name} on {parameter.device.type} in this version."
        if not torch.is_floating_point(parameter):
            return f"Fused updates are for real floating-point parameters, not for {parameter.dtype}."
        if parameter.grad is not None and parameter.grad.layout != torch.strided:
            return "Some gradients are sparse, which fused updates do not take."
    return ""


class Fusing:
    """Turns optimizers as they are met; `restore` makes them as they were."""

    def __init__(self, value: bool, notes: list[str]) -> None:
        self._value, self._notes = value, notes
        self._groups: dict[int, tuple[dict[str, Any], Any, Any]] = {}
        self._optimizers: dict[int, tuple[Optimizer, Any]] = {}
        self._steps: dict[int, tuple[dict[str, Any], Any]] = {}
        self._left: set[int] = set()

    def meet(self, optimizer: Optimizer) -> None:
        """Turns every group of the optimizer that is not turned yet; cheap where all are."""
        if id(optimizer) in self._left:
            return
        want = self._value
        if all((group.get("fused") is True) is want for group in optimizer.param_groups):
            if id(optimizer) in self._optimizers:  # at each step: gradients may turn out sparse
                self._leave_sparse(optimizer)
            return
        said = why_not(optimizer) if want else ""
        if said:
            self._leave(optimizer, said)
            return
        self._optimizers.setdefault(id(optimizer), (optimizer, vars(optimizer).get(_FLAG, _MISSING)))
        for group in optimizer.param_groups:
            if "fused" not in group or (group["fused"] is True) is want:
                continue
            self._groups.setdefault(id(group), (group, group["fused"], group.get("foreach")))
            group["fused"] = want
            if want and "foreach" in group:
                group["foreach"] = None
            self._move_steps(optimizer, group)
        if want:
            vars(optimizer)[_FLAG] = True
        else:
            vars(optimizer).pop(_FLAG, None)

    def _leave_sparse(self, optimizer: Optimizer) -> None:
        if self._value and any(p.grad is not None and p.grad.is_sparse for p in parameters_of(optimizer)):
            self._put_back(optimizer)
            self._leave(optimizer, "Some gradients are sparse, which fused updates do not take.")

    def _leave(self, optimizer: Optimizer, reason: str) -> None:
        self._left.add(id(optimizer))
        self._optimizers.setdefault(id(optimizer), (optimizer, vars(optimizer).get(_FLAG, _MISSING)))  # keeps its id
        self._notes.append(f"fused_optimizer did not change one {type(optimizer).__name__}: {reason}")

    def _move_steps(self, optimizer: Optimizer, group: dict[str, Any]) -> None:
        """Step counters to where the update reads them: the parameter's device if fused, else the host.

        Fused, they must be float32 tensors there; otherwise each would be read from the device at every step.
        """
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            if not state or "step" not in state:
                continue
            old = state["step"]
            self._steps.setdefault(id(state), (state, old))
            device = parameter.device if self._value or group.get("capturable") else torch.device("cpu")
            if not isinstance(old, torch.Tensor):
                if self._value:
                    state["step"] = torch.tensor(float(old), dtype=torch.float32, device=device)
            elif old.device != device or (self._value and old.dtype != torch.float32):
                state["step"] = old.to(device=device, dtype=torch.float32 if self._value else old.dtype)

    def restore(self) -> None:
        """Makes every optimizer as it was; what it has learned stays."""
        for optimizer, _ in list(self._optimizers.values()):
            self._put_back(optimizer)
        self._groups.clear()
        self._steps.clear()
        self._optimizers.clear()

    def _put_back(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            kept = self._groups.pop(id(group), None)
            if kept is None:
                continue
            _, group["fused"], foreach = kept
            if "foreach" in group:
                group["foreach"] = foreach
            on_device = bool(group["fused"] or group.get("capturable"))
            for parameter in group["params"]:
                self._put_step_back(optimizer, parameter, on_device)
        kept_flag = self._optimizers[id(optimizer)][1]
        if kept_flag is _MISSING:
            vars(optimizer).pop(_FLAG, None)
        else:
            vars(optimizer)[_FLAG] = kept_flag

    def _put_step_back(self, optimizer: Optimizer, parameter: torch.Tensor, on_device: bool) -> None:
        state = optimizer.state.get(parameter)
        if not state or "step" not in state:
            return
        now = state["step"]
        kept = self._steps.pop(id(state), None)
        old = kept[1] if kept is not None and kept[0] is state else None
        if old is now:
            return
        if isinstance(old, torch.Tensor):  # the very tensor that was there, counted on
            with torch.no_grad():
                old.copy_(now)
            state["step"] = old
        elif old is not None:
            state["step"] = type(old)(float(now))
        elif isinstance(now, torch.Tensor):
            state["step"] = now.to(parameter.device if on_device else torch.device("cpu"))


@contextmanager
def fused(value: bool, scope: TrialScope) -> Iterator[None]:
    """Fuses the updates of the loop's optimizers while the context lasts, or takes them apart."""
    fusing = Fusing(value, scope.notes)
    try:
        with Patches(scope.notes) as patches:
            meet_optimizers(scope, patches, "fused_optimizer", fusing.meet, fusing.meet)
            yield
    finally:
        fusing.restore()

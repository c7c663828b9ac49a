"""Records the facts that a module's first call shows, once: its model, its device and autocast."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.taps.listener import Listener


def record_call(listener: Listener, module: nn.Module, learns: bool) -> Any:
    """Records the facts that a call of a module shows, until all are known.

    Args:
        listener: The listener of the module.
        module: The module.
        learns: True if the module is in training mode or gradients are switched on.

    Returns:
        The handle of a hook that watches for autocast inside this call; None if there is none.
    """
    recorder = listener.recorder
    facts, hook = recorder.facts, None
    listener.used = listener.used or learns
    if not listener.calls:
        begin = recorder.clock()
        listener.scope.called.notify(recorder.note, "The model could not be read", module, stay=True)
        recorder.cost.searched(begin)
    if listener.trained and "autocast" not in facts:
        device = facts.get("device", "cpu")
        facts["autocast"] = _autocast(device)
        hook = None if facts["autocast"] else _hook_inside(listener, module, device)
    listener.known = listener.used and "autocast" in facts
    return hook


def _hook_inside(listener: Listener, module: nn.Module, device: str) -> Any:
    """Hooks the first layer, to see in one forward if autocast is turned on inside, as Accelerate and HF do it.

    Returns:
        A handle to be removed; None if a compiled graph would be compiled again because of the hook.
    """
    parts = list(module.modules())
    if any(models.compiles_itself(part) for part in parts):
        return None
    own = [part for part in parts if not isinstance(part, torch.jit.ScriptModule)]  # script modules take no hooks
    layer, facts = (
        next((part for part in own if not any(True for _ in part.children())), module),
        listener.recorder.facts,
    )

    def seen(_: nn.Module, args: Any) -> None:
        facts["autocast"] = facts["autocast"] or _autocast(device)

    listener.inner = layer.register_forward_pre_hook(listener.recorder.fence.quietly(seen))
    return listener.inner


def _autocast(device: str) -> str:
    """Returns autocast's data type on a device, such as `bfloat16`; empty if autocast is off."""
    kind = device.partition(":")[0]
    with suppress(RuntimeError):  # a device that has no autocast
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    return ""

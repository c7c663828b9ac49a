"""What the first call of a module tells of it, written down once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.taps.listener import Listener


def meet(listener: Listener, module: nn.Module, learns: bool) -> Any:
    """Writes down what a call tells of its module; returns a hook that looks inside of this one, if one was put."""
    recorder = listener.recorder
    facts, look = recorder.facts, None
    listener.heard = listener.heard or learns
    if not listener.calls:
        begin = recorder.clock()
        listener.scope.called.tell(recorder.note, "The model could not be read", module, stay=True)
        recorder.cost.searched(begin)
    if listener.trained and "autocast" not in facts:
        device = facts.get("device", "cpu")
        facts["autocast"] = _autocast(device)
        look = None if facts["autocast"] else _look_inside(listener, module, device)
    listener.known = listener.heard and "autocast" in facts
    return look


def _look_inside(listener: Listener, module: nn.Module, device: str) -> Any:
    """For one forward: looks from its first layer whether autocast was turned on inside, as Accelerate and HF do it.

    Returns:
        A handle to be removed; None where a compiled graph would be made anew for it.
    """
    parts = list(module.modules())
    if any(models.compiles_itself(part) for part in parts):
        return None
    own = [part for part in parts if not isinstance(part, torch.jit.ScriptModule)]  # which takes no hooks
    layer, facts = (
        next((part for part in own if not any(True for _ in part.children())), module),
        listener.recorder.facts,
    )

    def seen(_: nn.Module, args: Any) -> None:
        facts["autocast"] = facts["autocast"] or _autocast(device)

    listener.inner = layer.register_forward_pre_hook(listener.recorder.fence.quietly(seen))
    return listener.inner


def _autocast(device: str) -> str:
    kind = device.partition(":")[0]
    with suppress(RuntimeError):  # a device that has no autocast
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind)).removeprefix("torch.")
    return ""

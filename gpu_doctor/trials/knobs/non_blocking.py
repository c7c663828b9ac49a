"""Knob `non_blocking`: copies from pinned memory to the GPU no longer hold the loop up. GPU: not yet run on one.

Only copies of tensors that nobody has written into since they were made are let go on by themselves: a buffer that the
loop fills again and again could be overwritten before its copy is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.seam import Seam
from gpu_doctor.diagnosis.rules.rule import Safety
from gpu_doctor.recording import SettingValue, Setup
from gpu_doctor.trials.knobs.knob import Choice, Refused, TrialScope
from gpu_doctor.trials.knobs.loader import on_or_off, trained_from

NO_GPU = "The loop trains on the CPU: there is no copy to a GPU that it could wait for."


class NonBlocking:
    """See `Knob`; off is as the code says, call by call."""

    name = "non_blocking"
    label = "non_blocking"
    safety = Safety.SAFE
    changes = ""
    front = False

    def found(self, setup: Setup) -> bool | None:
        return None if setup == Setup() else False

    def choices(self, setup: Setup) -> tuple[Choice, ...]:
        return (Choice(False, "as written"), Choice(True, "on", self.refusal(True, setup)))

    def parsed(self, text: str) -> bool:
        return on_or_off(text, self.name)

    def refusal(self, value: SettingValue, setup: Setup) -> str:
        if not value:
            return ""
        if not setup.on_gpu:
            other = f"non_blocking is offered on CUDA devices, and the loop trains on {setup.device}."
            return NO_GPU if setup.device == "cpu" else other
        loader = trained_from(setup)
        if loader is not None and not loader.pin_memory:
            return "A copy from pageable memory always waits: set pin_memory=True with it."
        return ""

    def turned(self, value: SettingValue, scope: TrialScope) -> AbstractContextManager[None]:
        return _turned(bool(value), scope)

    def code(self, value: SettingValue, setup: Setup) -> str:
        if not value:
            return "inputs = inputs.to(device)"
        device = setup.device if setup.on_gpu else "cuda"
        return f'inputs = inputs.to("{device}", non_blocking=True)  # from pinned memory: DataLoader(pin_memory=True)'


KNOB = NonBlocking()


@contextmanager
def _turned(value: bool, scope: TrialScope) -> Iterator[None]:
    if not value:
        yield
        return
    if scope.setup == Setup() and not torch.cuda.is_available():
        raise Refused("No GPU: there is no copy to a GPU that the loop could wait for.")
    acted = 0

    def copy(original: Callable[..., Any], self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal acted
        if not any(isinstance(one, bool) for one in args) and _fresh(self):
            acted += 1
            return original(self, *args, **{**kwargs, "non_blocking": True})
        return original(self, *args, **kwargs)

    patches = Patches()
    try:
        for name in ("to", "cuda"):
            patches.wrap(torch.Tensor, name, lambda original: Seam(original, copy))
        yield
    finally:
        patches.restore()
        scope.notes.extend(patches.notes)
        if not acted:
            scope.notes.append("non_blocking=True changed nothing: no copy of a batch in pinned memory was seen.")


def _fresh(tensor: torch.Tensor) -> bool:
    """In pinned host memory, and never written to since it was made (as what a loader hands out)."""
    if tensor.device.type != "cpu":
        return False
    try:
        return bool(tensor.is_pinned()) and (tensor.is_inference() or tensor._version == 0)
    except RuntimeError:  # no driver to ask, or a kind of tensor that has no memory
        return False

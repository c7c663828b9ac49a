"""Hears every optimizer step, through torch's own global step hooks; `zero_grad` is billed to the optimizer too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpu_doctor.phases import OPTIMIZER
from gpu_doctor.taps.tap import TapScope


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """A step begins and ends; before an optimizer's first use the scope's
    `optimized` listeners hear of it."""
    recorder, ledger = scope.recorder, scope.recorder.ledger
    known: set[int] = set()
    befores: list[int] = []

    def meet(optimizer: torch.optim.Optimizer) -> None:
        known.add(id(optimizer))
        for hear in scope.optimized:
            try:
                hear(optimizer)
            except Exception as error:
                recorder.note(f"The optimizer's model could not be read: {error}")

    def stepping(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if get_ident() != recorder.thread and not recorder.adopt():
            return
        if id(optimizer) not in known:
            meet(optimizer)
        if not ledger.asked:
            recorder.check_end()
        befores.append(ledger.optimizer(id(optimizer)))

    def stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if befores and get_ident() == recorder.thread:
            ledger.optimizer_done(id(optimizer), befores.pop())

    def zeroing(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def zero_grad(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            if get_ident() != recorder.thread and not recorder.adopt():
                return original(self, *args, **kwargs)
            if id(self) not in known:
                # Most loops zero the gradients before the first forward: met here, that forward is heard already.
                meet(self)
            if not ledger.started:
                return original(self, *args, **kwargs)
            before = ledger.switch(OPTIMIZER)
            try:
                return original(self, *args, **kwargs)
            finally:
                ledger.switch(before)

        return zero_grad

    scope.patches.hook("optimizer step pre hook", register_optimizer_step_pre_hook(stepping).remove)
    scope.patches.hook("optimizer step post hook", register_optimizer_step_post_hook(stepped).remove)
    scope.patches.wrap(torch.optim.Optimizer, "zero_grad", zeroing)
    yield

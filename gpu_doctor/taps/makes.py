"""Notes the make of model and optimizers when one first steps, and has the outermost modules looked at now and then."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import nn

from gpu_doctor import models
from gpu_doctor.facts import OptimizerFacts
from gpu_doctor.modelmakes import model_facts, optimizer_facts
from gpu_doctor.taps.looking import Looker
from gpu_doctor.taps.tap import TapScope


@contextmanager
def tap(scope: TapScope) -> Iterator[None]:
    """Facts `model`, `optimizer_facts`, `inputs` and `evaluation` of the setup."""
    recorder, namespace = scope.recorder, scope.namespace
    facts, looker = recorder.facts, Looker(scope)
    met: list[OptimizerFacts] = []
    owned: list[torch.Tensor] = []

    def first_pull() -> None:
        if not looker.steps:
            looker.open()

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        met.append(optimizer_facts(optimizer))
        facts["optimizer_facts"] = tuple(met)
        owned.extend(p for group in optimizer.param_groups for p in group["params"])
        found = models.outermost(namespace, owned)
        recorder.met += [weakref.ref(one) for one in (optimizer, *found)]
        facts["model"] = model_facts(found, namespace)
        if not looker.steps:
            looker.open()

    def stepped(now: int) -> None:
        looker.turn(now)
        if ended is not None:
            ended(now)

    first_pull()
    scope.pulled.append(first_pull)
    scope.optimized.append(first_step)
    facts["inputs"], facts["evaluation"] = looker.inputs, looker.evaluation
    scope.patches.wrap(nn.Module, "eval", functools.partial(_evaluating, looker))
    ended = recorder.ledger.on_step
    recorder.ledger.on_step = stepped
    try:
        yield
    finally:
        recorder.ledger.on_step = ended
        seen = [one for key, one in looker.modules.items() if key in looker.idle or key in looker.seen]
        if "model" not in facts and seen:
            facts["model"] = model_facts(seen, namespace)
        looker.end()
        facts["inputs"], facts["evaluation"] = looker.inputs(), looker.evaluation()
        owned.clear()


def _evaluating(looker: Looker, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluate(self: nn.Module) -> Any:
        if get_ident() == looker.recorder.thread:
            looker.recorder.ledger.steady.wake()
            looker.evaluates()
        return original(self)

    return evaluate

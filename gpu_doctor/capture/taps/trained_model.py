"""Records facts of model and optimizers at the first optimizer step, and inspects outermost modules now and then."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.model_facts import model_facts, optimizer_facts
from gpu_doctor.capture.taps.evaluation_mode import EvaluationMode
from gpu_doctor.capture.taps.inputs import Looker
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.unused_gradients import Unstepped
from gpu_doctor.recording.setup import OptimizerFacts


def tap(scope: TapScope) -> None:
    """Facts of model, optimizers, `inputs`, `evaluation` and `kept_graphs` of the setup."""
    recorder = scope.recorder
    facts, looker, mode = recorder.facts, Looker(scope), EvaluationMode(scope)
    met: list[OptimizerFacts] = []
    unstepped = Unstepped(scope)
    described: set[int] = set()

    def first_pull() -> None:
        if not looker.steps:
            looker.open()

    def describe() -> list[nn.Module]:
        owned = scope.owned.alive()
        found = scope.models.holding(owned)
        recorder.meet(*found)
        facts.update(models.described(found, owned))
        scope.flags["model_names"] = _names_of(owned, scope.namespace or {})
        facts["model"] = functools.partial(unstepped.told, model_facts(found, scope.namespace))
        mode.met(found)
        return found

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        scope.owned.add(p for group in optimizer.param_groups for p in group["params"])
        found = describe()
        recorder.meet(optimizer)
        if isinstance(optimizer, torch.optim.Optimizer):  # of a library's own none of our knobs knows
            met.append(optimizer_facts(optimizer))
            facts["optimizer_facts"] = tuple(met)
        facts["optimizers"] = tuple(one.name for one in met)
        unstepped.met(found, optimizer)
        if not looker.steps:
            looker.open()

    def shown() -> None:
        if "optimizers" in facts:
            unstepped.shown(describe())

    def predicts() -> None:
        """Of a loop without an optimizer the modules that it calls are the model."""
        found = [] if "optimizers" in facts else looker.shown()
        if not described.issuperset(id(one) for one in found):
            described.update(id(one) for one in found)
            facts["model"] = model_facts(found, scope.namespace)

    looker.predicts = predicts
    first_pull()
    scope.pulled.append(first_pull)
    scope.optimized.append(first_step)
    scope.found.append(shown)

    def end() -> None:
        recorder.listeners.hear_no_steps(looker.turn)
        predicts()
        if callable(facts.get("model")):  # who keeps the recorder must not keep what the code names
            facts["model"] = facts["model"]()
        looker.end()
        mode.end()
        unstepped.end()

    scope.tells("inputs", looker.inputs)
    scope.tells("idle_inputs", looker.idle_inputs)
    scope.tells("evaluation", looker.evaluation)
    scope.tells("kept_graphs", looker.kept_graphs)
    scope.patches.wrap(nn.Module, "eval", functools.partial(_evaluating, looker, mode))
    recorder.listeners.hear_steps(looker.turn)
    scope.at_end(end)


def _names_of(parameters: list[torch.Tensor], namespace: Mapping[str, object]) -> tuple[str, ...]:
    """Names under which the code finds modules that own some of these parameters."""
    ids = {id(one) for one in parameters}
    modules = [(name, one) for name, one in list(namespace.items()) if issubclass(type(one), torch.nn.Module)]
    return tuple(name for name, one in modules if any(id(p) in ids for p in one.parameters()))  # type: ignore[attr-defined]


def _evaluating(looker: Looker, mode: EvaluationMode, original: Callable[..., Any]) -> Callable[..., Any]:
    def begins(module: nn.Module) -> nn.Module:
        looker.evaluates()
        return module

    around = looker.recorder.fence.around_in_graphs
    return around(original, begins, lambda module, result: mode.on(module), anyone=False)

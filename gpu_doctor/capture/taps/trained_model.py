"""Describes the model and the optimizers at the first optimizer step, and samples the inputs of outermost modules."""

from __future__ import annotations

import functools
import weakref
from typing import Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.model_facts import model_facts, optimizer_facts
from gpu_doctor.capture.taps.inputs import InputSampler
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.unused_gradients import Unstepped
from gpu_doctor.recording.setup import EvaluationFacts, OptimizerFacts

MOST_DESCRIBED: Final = 8
"""Maximum number of optimizers, or of models in a loop without one, that are described: a sweep makes many."""


def tap(scope: TapScope) -> None:
    """Adds facts to the setup: of the model, the optimizers, the inputs, the evaluation and the kept graphs."""
    recorder = scope.recorder
    facts, sampler = recorder.facts, InputSampler(scope)
    described: list[OptimizerFacts] = []
    unstepped = Unstepped(scope)
    called: list[weakref.ref[nn.Module]] = []

    def describe() -> list[nn.Module]:
        """Describes the model that holds the optimizers' parameters; returns its outermost modules."""
        owned = scope.owned.alive()
        found = scope.models.holding(owned)
        recorder.remember(*found)
        facts.update(models.described(found, owned))
        facts["model"] = functools.partial(unstepped.added_to, model_facts(found, scope.namespace))
        return found

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        """Describes an optimizer and the model before its first step."""
        recorder.remember(optimizer)
        sampler.begin()
        if recorder.cost.searches >= MOST_DESCRIBED:
            parameters = (p for group in optimizer.param_groups for p in group["params"])
            recorder.remember(*scope.models.holding(parameters))
            return
        found = describe()
        if isinstance(optimizer, torch.optim.Optimizer):  # none of our knobs applies to a library's own optimizer
            described.append(optimizer_facts(optimizer))
            facts["optimizer_facts"] = tuple(described)
        facts["optimizers"] = tuple(fact.name for fact in described)
        unstepped.add(found, optimizer)

    def shown() -> None:
        """Describes the model again, after a call has shown a further module of it."""
        if "optimizers" in facts and recorder.cost.searches < MOST_DESCRIBED:
            unstepped.add_modules(describe())

    def first_call(module: nn.Module) -> None:
        """Describes the modules that are called as the model, as long as no parameters are trained."""
        if not scope.owned.alive() and len(called) < MOST_DESCRIBED:
            called.append(weakref.ref(module))
            found = [alive for ref in called if (alive := ref()) is not None]
            facts.update(models.described(found))
            facts["model"] = model_facts(found, scope.namespace)

    def evaluation() -> EvaluationFacts | None:
        """Returns the counts of evaluation forwards; None if no forward was sampled."""
        counted = scope.evaluations
        if not sampler.forwards:
            return None
        edge_s = recorder.step_clock.evaluation_edge_ns * 1e-9
        return EvaluationFacts(forwards=counted.forwards, with_gradients=counted.unused, edge_s=edge_s)

    sampler.begin()
    scope.pulled.append(sampler.begin)
    scope.optimized.append(first_step)
    scope.found.append(shown)
    scope.called.append(first_call)

    def end() -> None:
        recorder.listeners.off_steps(sampler.turn)
        scope.evaluations.settle()
        if callable(facts.get("model")):  # a recorder that is kept must not keep the user's objects
            facts["model"] = facts["model"]()
        sampler.end()
        unstepped.end()

    scope.add_fact("inputs", sampler.inputs)
    scope.add_fact("idle_inputs", sampler.idle)
    scope.add_fact("evaluation", evaluation)
    scope.add_fact("kept_graphs", sampler.kept_graphs)
    recorder.listeners.on_steps(sampler.turn)
    scope.at_end(end)

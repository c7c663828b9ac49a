"""Describes model and optimizers at the first optimizer step, and inspects outermost modules now and then."""

from __future__ import annotations

import functools
import weakref
from typing import Final

import torch
from torch import nn

from gpu_doctor.capture.describe import models
from gpu_doctor.capture.describe.model_facts import model_facts, optimizer_facts
from gpu_doctor.capture.taps.inputs import Looker
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.capture.taps.unused_gradients import Unstepped
from gpu_doctor.recording.setup import EvaluationFacts, OptimizerFacts

MOST_DESCRIBED: Final = 8
"""Optimizers, and models of a loop without one, that are described: a sweep makes one after the other."""


def tap(scope: TapScope) -> None:
    """Facts of model, optimizers, `inputs`, `evaluation` and `kept_graphs` of the setup."""
    recorder = scope.recorder
    facts, looker = recorder.facts, Looker(scope)
    met: list[OptimizerFacts] = []
    unstepped = Unstepped(scope)
    called: list[weakref.ref[nn.Module]] = []

    def describe() -> list[nn.Module]:
        owned = scope.owned.alive()
        found = scope.models.holding(owned)
        recorder.meet(*found)
        facts.update(models.described(found, owned))
        facts["model"] = functools.partial(unstepped.told, model_facts(found, scope.namespace))
        return found

    def first_step(optimizer: torch.optim.Optimizer) -> None:
        recorder.meet(optimizer)
        looker.begin()
        if recorder.cost.searches >= MOST_DESCRIBED:
            parameters = (p for group in optimizer.param_groups for p in group["params"])
            recorder.meet(*scope.models.holding(parameters))
            return
        found = describe()
        if isinstance(optimizer, torch.optim.Optimizer):  # of a library's own none of our knobs knows
            met.append(optimizer_facts(optimizer))
            facts["optimizer_facts"] = tuple(met)
        facts["optimizers"] = tuple(one.name for one in met)
        unstepped.met(found, optimizer)

    def shown() -> None:
        if "optimizers" in facts and recorder.cost.searches < MOST_DESCRIBED:
            unstepped.shown(describe())

    def first_call(module: nn.Module) -> None:
        """Of a loop that trains nothing, or nothing yet, the modules that it calls are the model."""
        if not scope.owned.alive() and len(called) < MOST_DESCRIBED:
            called.append(weakref.ref(module))
            found = [one for ref in called if (one := ref()) is not None]
            facts.update(models.described(found))
            facts["model"] = model_facts(found, scope.namespace)

    def evaluation() -> EvaluationFacts | None:
        counted = scope.evaluations
        if not looker.forwards:
            return None
        edge_s = recorder.step_clock.evaluation_edge_ns * 1e-9
        return EvaluationFacts(forwards=counted.forwards, with_gradients=counted.unused, edge_s=edge_s)

    looker.begin()
    scope.pulled.append(looker.begin)
    scope.optimized.append(first_step)
    scope.found.append(shown)
    scope.called.append(first_call)

    def end() -> None:
        recorder.listeners.hear_no_steps(looker.turn)
        scope.evaluations.settle()
        if callable(facts.get("model")):  # who keeps the recorder must not keep what the code names
            facts["model"] = facts["model"]()
        looker.end()
        unstepped.end()

    scope.add_fact("inputs", looker.inputs)
    scope.add_fact("idle_inputs", looker.idle)
    scope.add_fact("evaluation", evaluation)
    scope.add_fact("kept_graphs", looker.kept_graphs)
    recorder.listeners.hear_steps(looker.turn)
    scope.at_end(end)

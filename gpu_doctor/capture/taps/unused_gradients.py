"""Finds gradients that no optimizer steps by: of parameters that none owns, and such as are cleared before a step.

In one turn of the loop, after every optimizer has stepped once, the graph of each backward is walked before it runs:
which optimizers' parameters it gives gradients to. Then the gradients are followed: a step uses them, or other ones
stand in their place.
"""

from __future__ import annotations

import math
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.backward_graph import MOST_OPERATIONS
from gpu_doctor.capture.describe.models import size_of
from gpu_doctor.capture.describe.nodes import LEAF, behind, name_of, shape_of
from gpu_doctor.capture.taps.moments import Listeners
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import ModelFacts

MOST_STEPS: Final = 40
"""It is given up after so many: a critic of a GAN steps up to 10 times as often as the generator."""
MOST_OPTIMIZERS: Final = 16
NOBODY, OTHER, UNMET = 0, -1, -2
"""In the place of an optimizer's id: nobody owns the parameter, it is no parameter, an optimizer owns it that has not
been met."""


@dataclass
class Backward:
    """One backward: whom the gradients serve that it computes, and what has become of those of parameters."""

    serving: dict[frozenset[int], float] = field(default_factory=lambda: defaultdict(float))
    """Numbers in all gradients, those between two operations too, by the optimizers that they serve. Those that one
    operation makes count alike for each of its inputs: the gradient of a weight takes as long as that of what the
    weight is multiplied with, whichever is larger."""
    leaves: dict[int, list[weakref.ref[torch.Tensor]]] = field(default_factory=lambda: defaultdict(list))
    """By optimizer."""
    waiting: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None, int]] = field(default_factory=dict)
    """By optimizer, its smallest parameter, the gradient (which is held) and the steps after the backward."""
    used: set[int] = field(default_factory=lambda: {OTHER, UNMET})
    lost: set[int] = field(default_factory=lambda: {NOBODY})

    def look(self, steps: Mapping[int, int]) -> None:
        """Tells gradients that an optimizer has used, and such as are no longer there; `steps` by optimizer."""
        for owner, (ref, gradient, before) in list(self.waiting.items()):
            parameter = ref()
            if parameter is None or parameter.grad is not gradient:
                self.lost.add(owner)
            elif steps[owner] != before:
                self.used.add(owner)
            else:
                continue
            del self.waiting[owner]

    def ended(self, steps: Mapping[int, int]) -> None:
        """A backward has ended: what it put in place of a gradient was added to it."""
        for owner, (ref, _, _) in list(self.waiting.items()):
            parameter = ref()
            if parameter is None or parameter.grad is None:  # stepped within the backward, or kept elsewhere
                self.used.add(owner)
                del self.waiting[owner]
            else:
                self.waiting[owner] = ref, parameter.grad, steps[owner]


def walked(results: Any, owner_of: Callable[[torch.Tensor], int]) -> Backward:
    """The backward that begins; some 4 us an operation. Nothing of a graph of more than MOST_OPERATIONS.

    Args:
        results: the loss, or several.
        owner_of: the optimizer of a leaf, by its id.
    """
    nodes, whole = behind(results, MOST_OPERATIONS)
    found, served = Backward(), dict[Any, frozenset[int]]()
    for node in nodes if whole else ():
        if name_of(node) == LEAF:
            owner = owner_of(node.variable)
            served[node] = frozenset((owner,))
            found.leaves[owner].append(weakref.ref(node.variable))
            continue
        edges = [(one, number) for one, number in node.next_functions if one is not None]
        served[node] = frozenset[int]().union(*(served[one] for one, _ in edges))
        if len(edges) == 1 and name_of(edges[0][0]) == LEAF:  # a parameter's transpose or cast
            continue
        numbers = sum(_numbers(one, number) for one, number in edges)
        for one, _ in edges:
            found.serving[served[one]] += numbers / len(edges)
    for owner in found.leaves.keys() - {NOBODY, OTHER, UNMET}:
        alive = [one for ref in found.leaves[owner] if (one := ref()) is not None]
        found.waiting[owner] = weakref.ref(min(alive, key=lambda one: size_of(one)[0])), None, 0
    return found


def _numbers(node: Any, number: int) -> int:
    """Numbers in the gradient that an operation, or a leaf, is handed."""
    return size_of(node.variable)[0] if name_of(node) == LEAF else math.prod(shape_of(node, number))


class Unstepped:
    """Follows the gradients of one turn of the loop, after every optimizer has stepped once."""

    def __init__(self, scope: TapScope) -> None:
        """Looks at the models that the scope's code names, besides those it is told of."""
        self._scope, self._steps, self._over = scope, 0, False
        self._modules: dict[int, weakref.ref[nn.Module]] = {}
        self._met: dict[int, int] = {}
        """By id, the steps of an optimizer when it was met. They are counted: a fused one leaves its parameters'
        versions as they are."""
        self._owners: dict[int, int] = {}
        """By id of a parameter, its optimizer's."""
        self._everyones: set[int] | None = None
        """Parameters of all optimizers that were made in this run or have a name; None = not needed so far."""
        self._seen: list[Backward] = []
        self._found: dict[str, Any] = {}

    def met(self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        """An optimizer of these outermost modules was met."""
        if self._over:
            return
        if not self._met:
            for hears, hear in self._hearers():
                hears.join(hear)
            self.shown(self._scope.models.alive())  # besides those that hold what is stepped: a backbone of its own
        self.shown(modules)
        owned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if owned:
            self._met[id(optimizer)] = self._scope.steps[id(optimizer)]
            self._owners.update({id(p): id(optimizer) for p in owned})
            self._seen = []  # of those it was not known whose their gradients are
        if len(self._met) > MOST_OPTIMIZERS:
            self.end()

    def shown(self, modules: Iterable[nn.Module]) -> None:
        """These modules were found since their optimizer was met."""
        if not self._over:
            self._modules.update({id(one): weakref.ref(one) for one in modules})

    def end(self) -> None:
        """The run is over, or it is known: nothing of the model is held any longer."""
        self._over = True
        self._modules, self._everyones, self._met, self._owners, self._seen = {}, None, {}, {}, []
        for hears, hear in self._hearers():
            hears.leave(hear)

    def told(self, facts: ModelFacts) -> ModelFacts:
        """The make of the model, with what was found by now."""
        self._judge()
        return replace(facts, **self._found)

    def stepped(self) -> None:
        """An optimizer has stepped, on the training thread."""
        self._steps += 1
        turned = self._look() > 1
        waits = any(one.waiting or UNMET in one.leaves for one in self._seen)
        if (turned and self._seen and not waits) or self._steps >= MOST_STEPS:
            self._judge()
            self.end()

    def begins(self, results: Any) -> None:
        """A backward begins, on the training thread."""
        if self._look() != 1:
            return
        self._seen.append(walked(results, self._owner_of))

    def ended(self) -> None:
        """A backward has ended."""
        steps = self._taken()
        for one in self._seen:
            one.ended(steps)

    def _taken(self) -> dict[int, int]:
        """How often each optimizer has stepped since it was met."""
        return {owner: self._scope.steps[owner] - before for owner, before in self._met.items()}

    def _look(self) -> int:
        """Follows the gradients; returns how often the optimizer has stepped that steps least."""
        steps = self._taken()
        for one in self._seen:
            one.look(steps)
        return min(steps.values(), default=0)

    def _hearers(self) -> tuple[tuple[Listeners, Any], ...]:
        scope = self._scope
        return (scope.stepped, self.stepped), (scope.differentiated, self.begins), (scope.backed, self.ended)

    def _owner_of(self, leaf: torch.Tensor) -> int:
        if not isinstance(leaf, nn.Parameter):
            return OTHER
        if id(leaf) in self._owners:
            return self._owners[id(leaf)]
        if self._everyones is None:
            self._everyones = self._scope.owners()
        return UNMET if id(leaf) in self._everyones else NOBODY

    def _judge(self) -> None:
        """Judges the backwards that an optimizer stepped by and whose gradients have all come to an end, if any."""
        known = [one for one in self._seen if not one.waiting and one.used & self._met.keys()]
        if not known:
            return
        whole = sum(sum(one.serving.values()) for one in known)
        spared = sum(numbers for one in known for whom, numbers in one.serving.items() if not whom & one.used)
        refs = [ref for one in known for owner in one.lost for ref in one.leaves.get(owner, ())]
        wasted = {id(p): p for ref in refs if (p := ref()) is not None}
        modules = [module for ref in self._modules.values() if (module := ref()) is not None]
        named = [(name, p) for module in modules for name, p in module.named_parameters()]
        largest = max((one for one in named if id(one[1]) in wasted), key=lambda one: size_of(one[1])[0], default=("",))
        self._found = {
            "unstepped": sum(size_of(p)[0] for p in wasted.values()),
            "unstepped_place": largest[0],
            "spared_share": spared / whole if whole else 0.0,
            "gradients_cleared": any(one.lost - {NOBODY} for one in known),
        }

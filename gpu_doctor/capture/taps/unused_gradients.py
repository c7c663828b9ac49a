"""Finds gradients that no optimizer uses: those of parameters without an optimizer, and those cleared before a step.

In one turn of the loop, after every optimizer has stepped once, the graph of each backward is traversed before it runs,
to see which optimizers' parameters it gives gradients to. Then the gradients are followed until a step uses them or
other gradients replace them.
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
"""Maximum number of steps to follow: a critic of a GAN steps up to 10 times as often as the generator."""
MOST_OPTIMIZERS: Final = 16
"""Maximum number of optimizers to follow."""
NOBODY, OTHER, UNMET = 0, -1, -2
"""Values in place of an optimizer's id: the parameter has no optimizer, the tensor is no parameter, or the parameter's
optimizer was not used yet."""


@dataclass
class Backward:
    """One backward: the optimizers that its gradients serve, and which of these have used their gradients."""

    serving: dict[frozenset[int], float] = field(default_factory=lambda: defaultdict(float))
    """Numbers in all gradients, those between two operations too, by the optimizers that they serve. The gradients
    that one operation makes are split evenly among its inputs: the gradient of a weight takes as long as that of the
    weight's factor, whichever is larger."""
    leaves: dict[int, list[weakref.ref[torch.Tensor]]] = field(default_factory=lambda: defaultdict(list))
    """Parameters and other leaves that get gradients, by optimizer."""
    waiting: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None, int]] = field(default_factory=dict)
    """Gradients still to be used or replaced, by optimizer: its smallest parameter, that parameter's gradient (kept
    alive meanwhile), and the optimizer's steps when the backward ended."""
    used: set[int] = field(default_factory=lambda: {OTHER, UNMET})
    """Optimizers that have used their gradients."""
    lost: set[int] = field(default_factory=lambda: {NOBODY})
    """Optimizers whose gradients were cleared or replaced before a step."""

    def check(self, steps: Mapping[int, int]) -> None:
        """Checks which waiting gradients were used or lost by now; `steps` counts each optimizer's steps."""
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
        """Stores the gradients when a backward has ended: a gradient it replaced was added to, so it is not lost."""
        for owner, (ref, _, _) in list(self.waiting.items()):
            parameter = ref()
            if parameter is None or parameter.grad is None:  # used within the backward, or stored elsewhere
                self.used.add(owner)
                del self.waiting[owner]
            else:
                self.waiting[owner] = ref, parameter.grad, steps[owner]


def walked(results: Any, owner_of: Callable[[torch.Tensor], int]) -> Backward:
    """Traverses the graph of a backward that begins, which takes some 4 us an operation.

    Args:
        results: The loss, or several.
        owner_of: Returns the id of a leaf's optimizer.

    Returns:
        The backward, which is empty if the graph has more than MOST_OPERATIONS.
    """
    nodes, whole = behind(results, MOST_OPERATIONS)
    found, served = Backward(), dict[Any, frozenset[int]]()
    for node in nodes if whole else ():
        if name_of(node) == LEAF:
            owner = owner_of(node.variable)
            served[node] = frozenset((owner,))
            found.leaves[owner].append(weakref.ref(node.variable))
            continue
        edges = [(source, number) for source, number in node.next_functions if source is not None]
        served[node] = frozenset[int]().union(*(served[source] for source, _ in edges))
        if len(edges) == 1 and name_of(edges[0][0]) == LEAF:  # a parameter's transpose or cast
            continue
        numbers = sum(_numbers(source, number) for source, number in edges)
        for source, _ in edges:
            found.serving[served[source]] += numbers / len(edges)
    for owner in found.leaves.keys() - {NOBODY, OTHER, UNMET}:
        alive = [leaf for ref in found.leaves[owner] if (leaf := ref()) is not None]
        found.waiting[owner] = weakref.ref(min(alive, key=lambda leaf: size_of(leaf)[0])), None, 0
    return found


def _numbers(node: Any, number: int) -> int:
    """Returns how many numbers there are in the gradient that arrives at an operation's output, or at a leaf."""
    return size_of(node.variable)[0] if name_of(node) == LEAF else math.prod(shape_of(node, number))


class Unstepped:
    """Follows the gradients in one turn of the loop, after every optimizer has stepped once."""

    def __init__(self, scope: TapScope) -> None:
        """Begins without an optimizer."""
        self._scope, self._steps, self._over = scope, 0, False
        self._modules: dict[int, weakref.ref[nn.Module]] = {}
        self._steps_before: dict[int, int] = {}
        """Steps of each optimizer before its first use here, by its id. Steps are counted, for the version counters of
        the parameters do not show them: a fused optimizer leaves these as they are."""
        self._owners: dict[int, int] = {}
        """Id of each parameter's optimizer, by the parameter's id."""
        self._everyones: set[int] | None = None
        """Ids of the parameters of all optimizers that were made in this run or have a name; None before they are
        needed."""
        self._seen: list[Backward] = []
        """Backwards that are followed."""
        self._found: dict[str, Any] = {}

    def add(self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        """Adds an optimizer before its first step, with the outermost modules that hold its parameters."""
        if self._over:
            return
        if not self._steps_before:
            for listeners, listener in self._moments():
                listeners.join(listener)
            self.add_modules(self._scope.models.alive())  # also modules that no optimizer steps, such as a backbone
        self.add_modules(modules)
        owned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if owned:
            self._steps_before[id(optimizer)] = self._scope.steps[id(optimizer)]
            self._owners.update({id(p): id(optimizer) for p in owned})
            self._seen = []  # the owners of their gradients were not all known
        if len(self._steps_before) > MOST_OPTIMIZERS:
            self.end()

    def add_modules(self, modules: Iterable[nn.Module]) -> None:
        """Adds outermost modules, whose parameters get names."""
        if not self._over:
            self._modules.update({id(module): weakref.ref(module) for module in modules})

    def end(self) -> None:
        """Stops listening and drops all references to the model: the run is over, or the answer is known."""
        self._over = True
        self._modules, self._everyones, self._steps_before, self._owners, self._seen = {}, None, {}, {}, []
        for listeners, listener in self._moments():
            listeners.leave(listener)

    def added_to(self, facts: ModelFacts) -> ModelFacts:
        """Returns the model's facts with the unused gradients found so far."""
        self._judge()
        return replace(facts, **self._found)

    def stepped(self) -> None:
        """Checks the gradients after an optimizer's step; ends when one turn of the loop is known."""
        self._steps += 1
        turned = self._check() > 1
        waits = any(backward.waiting or UNMET in backward.leaves for backward in self._seen)
        if (turned and self._seen and not waits) or self._steps >= MOST_STEPS:
            self._judge()
            self.end()

    def begins(self, results: Any) -> None:
        """Adds a backward that begins, if the optimizer that steps least has stepped exactly once."""
        if self._check() != 1:
            return
        self._seen.append(walked(results, self._owner_of))

    def ended(self) -> None:
        """Stores the gradients after a backward."""
        steps = self._taken()
        for backward in self._seen:
            backward.ended(steps)

    def _taken(self) -> dict[int, int]:
        """Returns the steps that each optimizer has taken since it was added."""
        return {owner: self._scope.steps[owner] - before for owner, before in self._steps_before.items()}

    def _check(self) -> int:
        """Checks the gradients of all backwards; returns the steps of the optimizer that has stepped least."""
        steps = self._taken()
        for backward in self._seen:
            backward.check(steps)
        return min(steps.values(), default=0)

    def _moments(self) -> tuple[tuple[Listeners, Any], ...]:
        """Returns the kinds of moments that this object listens to, each with its listener."""
        scope = self._scope
        return (scope.stepped, self.stepped), (scope.differentiated, self.begins), (scope.backed, self.ended)

    def _owner_of(self, leaf: torch.Tensor) -> int:
        """Returns the id of a leaf's optimizer, or OTHER, UNMET or NOBODY."""
        if not isinstance(leaf, nn.Parameter):
            return OTHER
        if id(leaf) in self._owners:
            return self._owners[id(leaf)]
        if self._everyones is None:
            self._everyones = self._scope.owners()
        return UNMET if id(leaf) in self._everyones else NOBODY

    def _judge(self) -> None:
        """Sums up the backwards whose gradients are all used or lost, and of which an optimizer used some."""
        known = [
            backward for backward in self._seen if not backward.waiting and backward.used & self._steps_before.keys()
        ]
        if not known:
            return
        whole = sum(sum(backward.serving.values()) for backward in known)
        spared = sum(
            numbers for backward in known for whom, numbers in backward.serving.items() if not whom & backward.used
        )
        refs = [ref for backward in known for owner in backward.lost for ref in backward.leaves.get(owner, ())]
        wasted = {id(p): p for ref in refs if (p := ref()) is not None}
        modules = [module for ref in self._modules.values() if (module := ref()) is not None]
        named = [(name, p) for module in modules for name, p in module.named_parameters()]
        largest = max(
            (item for item in named if id(item[1]) in wasted), key=lambda item: size_of(item[1])[0], default=("",)
        )
        self._found = {
            "unstepped": sum(size_of(p)[0] for p in wasted.values()),
            "unstepped_place": largest[0],
            "spared_share": spared / whole if whole else 0.0,
            "gradients_cleared": any(backward.lost - {NOBODY} for backward in known),
        }

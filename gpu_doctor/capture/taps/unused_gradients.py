"""Finds gradients that no optimizer steps by: of parameters that none owns, and such as are cleared before a step.

In one turn of the loop, after every optimizer has stepped once, the graph of each backward is walked before it runs:
which optimizers' parameters it gives gradients to. Then the gradients are followed: a step uses them, or other ones
stand in their place.
"""

from __future__ import annotations

import functools
import math
import operator
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
from gpu_doctor.capture.events import OURS
from gpu_doctor.capture.taps.tap import Listeners, TapScope
from gpu_doctor.recording.setup import ModelFacts

LOOK_AT: Final = 4
"""The optimizer step after which it is known, or later:"""
TURNS: Final = 3
"""when every optimizer has stepped so often. Between its first and second step lies one turn of the loop, whose
backwards are walked; the third tells what became of the gradients."""
MOST_STEPS: Final = 40
"""It is given up after so many: a critic of a GAN steps up to 10 times as often as the generator."""
MOST_OPTIMIZERS: Final = 16
OTHER, UNMET, NOBODY = 1, 2, 4
"""Bits of leaves that are no parameters, that an optimizer owns which has not been met, and that none owns."""
FIRST: Final = 8
"""The bit of the first optimizer that was met; the next has twice that."""


@dataclass
class Backward:
    """One backward: whom the gradients serve that it computes, and what has become of those of parameters."""

    serving: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    """Numbers in all gradients, those between two operations too, by whom they serve: the bits of parameters, or-ed.
    Those that one operation makes count alike for each of its inputs: the gradient of a weight takes as long as that of
    what the weight is multiplied with, whichever is larger."""
    leaves: dict[int, list[weakref.ref[torch.Tensor]]] = field(default_factory=lambda: defaultdict(list))
    waiting: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None, int]] = field(default_factory=dict)
    """By bit, the smallest parameter, its gradient (which is held) and its optimizer's steps after the backward."""
    used: int = OTHER | UNMET
    lost: int = NOBODY

    def look(self, steps: Mapping[int, int]) -> None:
        """Tells gradients that an optimizer has used, and such as are no longer there.

        Args:
            steps: of every optimizer, by its bit.
        """
        for bit, (ref, gradient, before) in list(self.waiting.items()):
            parameter = ref()
            if parameter is None or parameter.grad is not gradient:
                self.lost |= bit
            elif steps[bit] != before:
                self.used |= bit
            else:
                continue
            del self.waiting[bit]

    def ended(self, steps: Mapping[int, int]) -> None:
        """A backward has ended: what it put in place of a gradient was added to it."""
        for bit, (ref, _, _) in list(self.waiting.items()):
            parameter = ref()
            if parameter is None or parameter.grad is None:  # stepped within the backward, or kept elsewhere
                self.used |= bit
                del self.waiting[bit]
            else:
                self.waiting[bit] = (ref, parameter.grad, steps[bit])


def walked(results: Any, bit_of: Callable[[torch.Tensor], int]) -> Backward:
    """The backward that begins; some 4 us an operation. Nothing of a graph of more than MOST_OPERATIONS.

    Args:
        results: the loss, or several.
        bit_of: the bit of a leaf, a power of two.
    """
    nodes, whole = behind(results, MOST_OPERATIONS)
    found, masks = Backward(), dict[Any, int]()
    for node in nodes if whole else ():
        if name_of(node) == LEAF:
            masks[node] = bit_of(node.variable)
            found.leaves[masks[node]].append(weakref.ref(node.variable))
            continue
        edges = [(one, number) for one, number in node.next_functions if one is not None]
        masks[node] = functools.reduce(operator.or_, (masks[one] for one, _ in edges), 0)
        if len(edges) == 1 and name_of(edges[0][0]) == LEAF:  # a parameter's transpose or cast
            continue
        numbers = sum(_numbers(one, number) for one, number in edges)
        for one, _ in edges:
            found.serving[masks[one]] += numbers / len(edges)
    for bit, refs in found.leaves.items():
        alive = [one for ref in refs if (one := ref()) is not None]
        if bit >= FIRST and alive:
            found.waiting[bit] = weakref.ref(min(alive, key=lambda one: size_of(one)[0])), None, 0
    return found


def _numbers(node: Any, number: int) -> int:
    """Numbers in the gradient that an operation, or a leaf, is handed."""
    return size_of(node.variable)[0] if name_of(node) == LEAF else math.prod(shape_of(node, number))


class Unstepped:
    """Follows the gradients of one turn of the loop, after every optimizer has stepped once."""

    def __init__(self, scope: TapScope) -> None:
        """Looks at the models that the scope's code names, besides those it is told of."""
        self._scope, self._steps, self._over = scope, 0, False
        self._modules: dict[int, nn.Module] = {}
        self._owners: dict[int, tuple[int, int]] = {}
        """By bit, an optimizer's id and its steps when it was met. A fused one leaves its parameters' versions as they
        are, so steps are counted."""
        self._bits: dict[int, int] = {}
        self._everyones: set[int] | None = None
        """Parameters of all optimizers that were made in this run or have a name; None = not needed so far."""
        self._seen: list[Backward] = []
        self._found: dict[str, Any] = {}

    def met(self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer) -> None:
        """An optimizer of these outermost modules was met: its steps are heard until it is known."""
        if self._over:
            return
        owned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._modules.update({id(one): one for one in modules})
        if not self._owners:
            for hears, hear in self._hearers():
                hears.join(hear)
            self.shown(self._scope.models.alive())  # besides those that hold what is stepped: a backbone of its own
        if not owned:
            return
        bit = FIRST << len(self._owners)
        self._owners[bit] = id(optimizer), self._scope.steps[id(optimizer)]
        self._bits.update({id(p): bit for p in owned})
        self._seen = []  # of those it was not known whose their gradients are
        if len(self._owners) > MOST_OPTIMIZERS:
            self.end()

    def shown(self, modules: Iterable[nn.Module]) -> None:
        """These modules were found since their optimizer was met."""
        if not self._over:
            self._modules.update({id(one): one for one in modules})

    def end(self) -> None:
        """The run is over, or it is known: nothing of the model is held any longer."""
        self._over = True
        self._modules, self._everyones, self._bits, self._owners, self._seen = {}, None, {}, {}, []
        for hears, hear in self._hearers():
            hears.leave(hear)

    def told(self, facts: ModelFacts) -> ModelFacts:
        """The make of the model, with what was found by now."""
        if not self._over and self._steps >= LOOK_AT:
            self._judge()
        return replace(facts, **self._found)

    def stepped(self) -> None:
        """An optimizer has stepped, on the training thread."""
        self._steps += 1
        turns = self._look()
        waits = any(UNMET in one.leaves for one in self._seen)
        if (not waits and self._steps >= LOOK_AT and turns >= TURNS) or self._steps >= MOST_STEPS:
            self._judge()
            self.end()

    def begins(self, results: Any) -> None:
        """A backward begins, on the training thread."""
        if self._look() != 1:
            return
        log = self._scope.recorder.log
        begin = log.clock()
        self._seen.append(walked(results, self._bit_of))
        log.note((OURS, log.clock(), begin))

    def ended(self) -> None:
        """A backward has ended."""
        steps = self._taken()
        for one in self._seen:
            one.ended(steps)

    def _taken(self) -> dict[int, int]:
        """How often each optimizer has stepped since it was met, by its bit."""
        return {bit: self._scope.steps[key] - before for bit, (key, before) in self._owners.items()}

    def _look(self) -> int:
        """Follows the gradients; returns how often the optimizer has stepped that steps least."""
        steps = self._taken()
        for one in self._seen:
            one.look(steps)
        return min(steps.values(), default=0)

    def _hearers(self) -> tuple[tuple[Listeners, Any], ...]:
        scope = self._scope
        return (scope.stepped, self.stepped), (scope.differentiated, self.begins), (scope.backed, self.ended)

    def _bit_of(self, leaf: torch.Tensor) -> int:
        if not isinstance(leaf, nn.Parameter):
            return OTHER
        if id(leaf) in self._bits:
            return self._bits[id(leaf)]
        if self._everyones is None:
            self._everyones = self._scope.owners()
        return UNMET if id(leaf) in self._everyones else NOBODY

    def _judge(self) -> None:
        """Of the backwards that an optimizer stepped by and whose gradients have all come to an end."""
        known = [one for one in self._seen if not one.waiting and one.used & -FIRST]
        whole = sum(sum(one.serving.values()) for one in known)
        spared = sum(number for one in known for mask, number in one.serving.items() if not mask & one.used)
        refs = [ref for one in known for bit, refs in one.leaves.items() if bit & one.lost for ref in refs]
        wasted = {id(p): p for ref in refs if (p := ref()) is not None}
        named = [(name, p) for module in self._modules.values() for name, p in module.named_parameters()]
        largest = max((one for one in named if id(one[1]) in wasted), key=lambda one: size_of(one[1])[0], default=("",))
        self._found = {
            "unstepped": sum(size_of(p)[0] for p in wasted.values()),
            "unstepped_place": largest[0],
            "spared_share": spared / whole if whole else 0.0,
            "gradients_cleared": any(one.lost & -FIRST for one in known),
        }

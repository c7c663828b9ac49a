"""Notices gradients that no optimizer steps by: of parameters that none owns, and such as are cleared before a step.

In the first steps every backward's graph is walked once, before it: which part of its products serves which optimizer's
parameters. Then it is seen what becomes of the gradients: a step uses them, or other ones stand in their place.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.backward_products import Products, backward_products
from gpu_doctor.capture.describe.models import size_of
from gpu_doctor.capture.events import OURS
from gpu_doctor.capture.taps.tap import Listeners, TapScope
from gpu_doctor.recording.setup import ModelFacts

LOOK_AT: Final = 4
"""The optimizer step after which it is known, or later: """
TURNS: Final = 3
"""when every optimizer has stepped so often. Between its first and second step lies one turn of the loop, which is
looked at; the third tells what became of the gradients."""
MOST_STEPS: Final = 40
"""Nobody looks longer: a critic of a GAN steps up to 10 times as often as the generator."""
MOST_OPTIMIZERS: Final = 16
ASKED, UNMET, NOBODY = 1, 2, 4
"""Bits of leaves that are no parameters, that an optimizer owns which has not been met, and that none owns."""
FIRST: Final = 8
"""The bit of the first optimizer that was met; the next has twice that."""


@dataclass
class Owner:
    """An optimizer. Its steps are counted as it makes them: a fused one leaves its parameters' versions as they are."""

    bit: int
    key: int
    """Its id, by which the scope counts."""
    before: int = 0
    """Steps that it had made when it was met,"""
    steps: int = 0
    """and since."""

    def look(self, taken: Mapping[int, int]) -> None:
        """Reads how often it has stepped since it was met."""
        self.steps = taken.get(self.key, 0) - self.before


@dataclass
class Backward:
    """One backward: whom it serves, and what has become of that."""

    serving: dict[int, float]
    leaves: dict[int, list[weakref.ref[torch.Tensor]]]
    pending: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None, int]]
    """By bit, the smallest parameter, its gradient and its optimizer's steps after the backward."""
    used: int = ASKED | UNMET
    lost: int = NOBODY

    def look(self, steps: Mapping[int, int]) -> None:
        """Tells gradients that an optimizer has used, and such as are no longer there.

        Args:
            steps: of every optimizer, by its bit.
        """
        for bit, (ref, gradient, before) in list(self.pending.items()):
            parameter = ref()
            if parameter is None or parameter.grad is not gradient:
                self.lost |= bit
            elif steps[bit] != before:
                self.used |= bit
            else:
                continue
            del self.pending[bit]

    def ended(self, steps: Mapping[int, int]) -> None:
        """A backward has ended: what it put in place of a gradient was added to it."""
        for bit, (ref, _, _) in list(self.pending.items()):
            parameter = ref()
            if parameter is None or parameter.grad is None:  # stepped within the backward, or kept elsewhere
                self.used |= bit
                del self.pending[bit]
            else:
                self.pending[bit] = (ref, parameter.grad, steps[bit])


class Unstepped:
    """Follows the gradients of one turn of the loop, after every optimizer has stepped once."""

    def __init__(self, scope: TapScope) -> None:
        """Looks at the models that the scope's code names, besides those it is told of."""
        self._scope, self._steps, self._over = scope, 0, False
        self._modules: dict[int, nn.Module] = {}
        self._owners: list[Owner] = []
        self._bits: dict[int, int] = {}
        self._everyones: set[int] | None = None
        """Parameters of all optimizers that were made in this run or have a name: asked for once a backward reaches a
        parameter of which none that was met is the owner; None = nobody asked."""
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
        self._owners.append(Owner(bit, id(optimizer), self._scope.steps[id(optimizer)]))
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
        self._modules, self._everyones, self._bits, self._owners, self._seen = {}, None, {}, [], []
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
        self._look()
        waits = any(UNMET in one.leaves for one in self._seen)
        done = not waits and self._steps >= LOOK_AT and self._turns() >= TURNS
        if done or self._steps >= MOST_STEPS:
            self._judge()
            self.end()

    def begins(self, results: Any) -> None:
        """A backward begins, on the training thread."""
        self._look()
        if self._turns() != 1:
            return
        log = self._scope.recorder.log
        begin = log.clock()
        products = backward_products(results, self._bit_of)
        if products.serving:
            self._seen.append(_followed(products))
        log.note((OURS, log.clock(), begin))

    def ended(self) -> None:
        """A backward has ended."""
        steps = {owner.bit: owner.steps for owner in self._owners}
        for one in self._seen:
            one.ended(steps)

    def _look(self) -> None:
        for owner in self._owners:
            owner.look(self._scope.steps)
        steps = {owner.bit: owner.steps for owner in self._owners}
        for one in self._seen:
            one.look(steps)

    def _hearers(self) -> tuple[tuple[Listeners, Any], ...]:
        scope = self._scope
        return (scope.stepped, self.stepped), (scope.differentiated, self.begins), (scope.backed, self.ended)

    def _turns(self) -> int:
        """How often the optimizer has stepped that steps least."""
        return min((owner.steps for owner in self._owners), default=0)

    def _bit_of(self, leaf: torch.Tensor) -> int:
        if not isinstance(leaf, nn.Parameter):
            return ASKED
        if id(leaf) in self._bits:
            return self._bits[id(leaf)]
        if self._everyones is None:
            self._everyones = self._scope.owners()
        return UNMET if id(leaf) in self._everyones else NOBODY

    def _judge(self) -> None:
        """Of the backwards that an optimizer stepped by and whose gradients have all come to an end."""
        known = [one for one in self._seen if not one.pending and one.used & -FIRST]
        wasted: dict[int, torch.Tensor] = {}
        spared = whole = 0.0
        cleared = False
        for one in known:
            whole += sum(one.serving.values())
            spared += sum(number for mask, number in one.serving.items() if not mask & one.used)
            cleared = cleared or bool(one.lost & -FIRST)
            lost = [ref() for bit, refs in one.leaves.items() if bit & one.lost for ref in refs]
            wasted.update({id(p): p for p in lost if p is not None})
        named = [(name, p) for module in self._modules.values() for name, p in module.named_parameters()]
        largest = max((one for one in named if id(one[1]) in wasted), key=lambda one: size_of(one[1])[0], default=("",))
        share = spared / whole if whole else 0.0
        self._found = {
            "unstepped": sum(size_of(p)[0] for p in wasted.values()),
            "unstepped_place": largest[0],
            "spared_shares": (share, share),
            "gradients_cleared": cleared,
        }


def _followed(products: Products) -> Backward:
    """The backward that begins, with one parameter of each optimizer to be looked at."""
    pending: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor | None, int]] = {}
    for bit, leaves in products.leaves.items():
        if bit >= FIRST:
            smallest = min(leaves, key=lambda leaf: size_of(leaf)[0])
            pending[bit] = (weakref.ref(smallest), None, 0)
    kept = {bit: [weakref.ref(one) for one in found] for bit, found in products.leaves.items()}
    return Backward(dict(products.serving), kept, pending)

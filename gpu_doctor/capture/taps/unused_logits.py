"""Looks at some backwards for a layer over classes that computes at positions which the loss leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch import Tensor

from gpu_doctor.capture.describe.backward_products import backward_products
from gpu_doctor.capture.describe.nodes import behind
from gpu_doctor.capture.describe.unused_logits import Layer, Limit, layers_of_losses
from gpu_doctor.capture.events import OURS
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import UnusedLogits

LOOKS: Final = 16
"""Backwards that are looked at: how much of a text is masked differs from batch to batch."""
FIRST: Final = 4
"""Nobody looks longer where these had no such layer."""
RARER: Final = 4
"""After the first ones a backward is looked at whenever a quarter more have gone by: 16 of 81."""
MOST_OPERATIONS: Final = 5_000
"""Larger graphs are not looked at: some 10 ms each time."""


@dataclass
class Seen:
    """What was seen of layers of one size."""

    looks: int = 0
    """Backwards that had any."""
    layers: list[Layer] = field(default_factory=list)
    all_products: float = 0.0

    def add(self, layers: list[Layer], results: Any) -> None:
        """Those of one backward."""
        self.looks += 1
        self.layers += layers
        if not self.all_products and any(one.limits for one in layers):
            self.all_products = float(backward_products(results, lambda leaf: 1).serving[1])

    def fact(self) -> UnusedLogits | None:
        """The sum over all backwards; None where nothing is left out, or the counts of it lie on a device still."""
        limits = [limit for one in self.layers for limit in one.limits]
        if not limits or any(isinstance(limit.left, Tensor) for limit in limits):
            return None
        left = [min((int(limit.left) for limit in one.limits), default=one.rows) for one in self.layers]
        rows, used = sum(one.rows for one in self.layers), sum(left)
        if used >= rows:
            return None
        one = self.layers[0]
        told_by = min(limits, key=lambda limit: int(limit.left)).told_by
        size = (one.classes, one.width, one.dtype, one.sides, one.bias, one.behind)
        return UnusedLogits(told_by, self.looks, rows, used, *size, self.all_products)

    def read(self) -> None:
        """Reads the counts that lie on a device, which waits for it."""
        self.layers = [
            replace(one, limits=tuple(Limit(limit.told_by, int(limit.left)) for limit in one.limits))
            for one in self.layers
        ]


class Looks:
    """The looks of one run."""

    def __init__(self, scope: TapScope) -> None:
        """At backwards of the training thread."""
        self._scope = scope
        self._backwards, self._next, self._looks = 0, 1, 0
        self._seen: dict[tuple[int, int], Seen] = {}

    def begins(self, results: Any) -> None:
        """A backward begins, on the training thread."""
        self._backwards += 1
        if self._backwards < self._next:
            return
        log = self._scope.recorder.log
        begin = log.clock()
        self._looks += 1
        self._next += 1 + self._backwards // RARER
        nodes, whole = behind(results, MOST_OPERATIONS)
        found: dict[tuple[int, int], list[Layer]] = {}
        for one in layers_of_losses(nodes) if whole else ():
            found.setdefault((one.classes, one.width), []).append(one)
        for size, layers in found.items():
            self._seen.setdefault(size, Seen()).add(layers, results)
        if self._looks == (LOOKS if self._left_out() else FIRST):
            self.unhear()
        log.note((OURS, log.clock(), begin))

    def _left_out(self) -> bool:
        return any(one.limits for seen in self._seen.values() for one in seen.layers)

    def fact(self) -> UnusedLogits | None:
        """Of the largest layer that has any."""
        found = [fact for one in list(self._seen.values()) if (fact := one.fact()) is not None]
        return max(found, key=lambda one: (one.rows - one.used) * one.classes * one.width, default=None)

    def end(self) -> None:
        """The loop has ended: what lies on a device is read."""
        self.unhear()
        for one in self._seen.values():
            one.read()

    def unhear(self) -> None:
        """Nobody looks any longer."""
        self._scope.differentiated.leave(self.begins)


def tap(scope: TapScope) -> None:
    """Fact `unused_logits` of the setup."""
    looks = Looks(scope)
    scope.differentiated.append(looks.begins)
    failed = "How many logits the loss leaves out could not be read"
    scope.tells("unused_logits", looks.fact, looks.end, failed)

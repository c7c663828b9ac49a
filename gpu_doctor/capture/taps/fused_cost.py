"""Measures how much longer a step of an optimizer takes on this CPU than one fused kernel for all of its parameters.

That is a matter of dispatches for many small tensors and of passes over memory for large ones, and of whether the
allocator gives the temporary tensors of each operation back to the system. So both are stepped when the run is over,
with as many tensors as the run's optimizer has, of their mean size: torch's own functions, below the optimizer classes,
whose hooks are the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from gpu_doctor.capture.taps import both_ways
from gpu_doctor.capture.taps.both_ways import CLOCKS, Clocks

MOST_TENSORS: Final = 64
ELEMENTS: Final = 1 << 21
"""Of all tensors that are stepped, at most: 8 MiB, some 15 ms a step. What more of either takes is in proportion."""
COLD: Final = 1 << 21
"""Numbers that are touched between two steps, as many as the caches of a core hold: a loop's backward does so too."""
Lists: TypeAlias = Sequence[list[Tensor]]
"""Parameters, gradients, and two moments of each."""


def _adam(lists: Lists, steps: list[Tensor], fused: bool) -> None:
    weights, gradients, first, second = lists
    adam(
        *(weights, gradients, first, second, [], steps),
        foreach=False,
        fused=fused,
        amsgrad=False,
        beta1=0.9,
        beta2=0.999,
        lr=1e-3,
        weight_decay=0.0,
        eps=1e-8,
        maximize=False,
    )


def _sgd(lists: Lists, steps: list[Tensor], fused: bool, momentum: bool = False) -> None:
    weights, gradients, first, _ = lists
    kept: list[Tensor | None] = [*first] if momentum else [None] * len(weights)
    sgd(
        *(weights, gradients, kept),
        foreach=False,
        fused=fused,
        weight_decay=0.0,
        momentum=0.9 if momentum else 0.0,
        lr=1e-3,
        dampening=0.0,
        nesterov=False,
        maximize=False,
    )


STEPS: Final[Mapping[tuple[str, bool], Callable[[Lists, list[Tensor], bool], None]]] = {
    ("Adam", False): _adam,
    ("AdamW", False): _adam,
    ("SGD", False): _sgd,
    ("SGD", True): partial(_sgd, momentum=True),
}
"""Optimizer, and whether it has a momentum of that name -> a step; AdamW's decay is one operation more, left out."""


def timed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The figure in fact `optimizer_facts` of each that could be fused and is not; see `after_run.py`."""
    met = facts.get("optimizer_facts") or ()
    wanted = [one.can_fuse and not one.fused and one.tensors > 0 and (one.name, one.momentum) in STEPS for one in met]
    if not any(wanted):
        return {}
    told = (
        replace(one, longer_s=longer_s((one.name, one.momentum), one.tensors, one.elements)) if slow else one
        for one, slow in zip(met, wanted, strict=True)
    )
    return {"optimizer_facts": tuple(told)}


@cache
def longer_s(kind: tuple[str, bool], tensors: int, elements: int, clocks: Clocks = CLOCKS) -> tuple[float, ...]:
    """Seconds, least, median and most, that a step takes longer than a fused one, once in a process for such a model.

    Args:
        kind: one of `STEPS`.
        tensors: of its parameters.
        elements: of all of them.
        clocks: see `Clocks`.
    """
    size = max(min(elements // tensors, ELEMENTS), 1)
    tried = max(min(tensors, MOST_TENSORS, ELEMENTS // size), 1)
    with both_ways.as_in_training(), torch.no_grad():
        made: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
        lists = [[torch.zeros(size, **made) for _ in range(tried)] for _ in range(4)]
        steps, cold = [torch.ones((), **made) for _ in range(tried)], torch.zeros(COLD, **made)

        def way(fused: bool) -> Callable[[], float]:
            def once() -> float:
                cold.add_(1.0)
                begin = clocks[1]()
                STEPS[kind](lists, steps, fused)
                return clocks[1]() - begin

            return once

        return both_ways.longer_s(way(False), way(True), clocks, max(elements / (tried * size), 1.0))

"""A baseline from weights that lie one rounding away: what rounding, or other random draws, do to this very loop.

Training makes differences grow, by how much depends on the model, the optimizer and its learning rate. So that is not
guessed but tried (as in Monte Carlo arithmetic, Parker 1997): the code runs as in every baseline, but its weights are
off by one rounding at their first use. What its losses do then is what a change that only rounds otherwise may do too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.data import dataloader

from gpu_doctor.capture import Patches
from gpu_doctor.trials.compare.losses import ROUNDOFF
from gpu_doctor.trials.knobs.knob import TrialScope
from gpu_doctor.trials.knobs.trained_modules import TrainedModules

SEED: Final = 20_141
"""Of the nudges: on every rank the same, so that replicas stay replicas."""


@dataclass(frozen=True)
class Nudge:
    """What is done to a baseline."""

    dtype: str = "float32"
    """The coarsest format of both sides of the trial."""
    anew: bool = False
    """Random numbers are drawn anew from the model's first use on: masks of dropout, augmentation."""
    steps: int = 1
    """Of the run: each rounds once more."""


@contextmanager
def nudged(scope: TrialScope, nudge: Nudge) -> Iterator[None]:
    """Nudges the weights of every trained module at its first call in the context; a snapshot puts them back.

    Args:
        scope: where the code runs, and what is known of its loop.
        nudge: what is changed.
    """
    done = set[int]()

    def call(original: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        trained.called(module)
        if nudge.anew and not done:
            _draw_anew()
        for one in module.parameters():
            if id(one) not in done and not is_lazy(one):
                done.add(id(one))
                with suppress(RuntimeError, TypeError):  # weights of a kind of their own stay as they are
                    shift(one, nudge.dtype, nudge.steps)
        return original(module, *args, **kwargs)

    with Patches() as patches:
        trained = TrainedModules(scope, patches, "nudge", call)
        if nudge.anew:
            patches.wrap(dataloader._BaseDataLoaderIter, "__init__", _seeded_anew)
        trained.start()
        yield


def shift(weights: torch.Tensor, dtype: str, steps: int = 1) -> None:
    """Moves each number by what the roundings of a run are worth to it.

    A sum of n products is off by about sqrt(n) roundoffs of the format that it is added up in, here float32, and k
    steps by sqrt(k) times as much (Higham and Mary 2019). A coarser format rounds the factors alone, and the same ones
    alike in every step.
    """
    if not weights.is_floating_point() or not weights.numel():
        return
    summed = weights[0].numel() if weights.dim() > 1 else 1
    size = max(ROUNDOFF[dtype], ROUNDOFF["float32"] * (summed * steps) ** 0.5)
    generator = torch.Generator(weights.device).manual_seed(SEED + weights.numel())
    noise = torch.empty_like(weights, requires_grad=False).normal_(generator=generator)
    weights.data.mul_(noise.mul_(size).add_(1.0))  # not seen by autograd: the parameter is the same


def _draw_anew() -> None:
    """Goes on with other random numbers, in this process; the snapshot puts the generators back."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(SEED)


def _seeded_anew(original: Callable[..., None]) -> Callable[..., None]:
    """Gives the workers of a loader other seeds; the order of the samples is not drawn from these."""

    def init(iterator: Any, *args: Any, **kwargs: Any) -> None:
        original(iterator, *args, **kwargs)
        if isinstance(getattr(iterator, "_base_seed", None), int):
            iterator._base_seed += SEED

    return init

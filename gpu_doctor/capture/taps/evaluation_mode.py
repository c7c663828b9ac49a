"""Hears when a trained model is in evaluation mode and no gradients are recorded, until it is put back: an evaluation.

An evaluation may call parts of the model (`model.encoder(x)`), which nobody listens to. So from `model.eval()` on it is
heard whether gradients are switched off and when `model.train()` comes; at other times nothing of ours stands there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from gpu_doctor.capture.events import EVALUATED, EVALUATES
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.taps.tap import TapScope


class EvaluationMode:
    """The outermost trained models of a run, and the one of them that is in evaluation mode."""

    def __init__(self, scope: TapScope) -> None:
        """Where a backward comes the model is trained in evaluation mode: whoever is told so has ours meanwhile."""
        self._recorder, self._backed = scope.recorder, scope.backed
        self._models: dict[int, weakref.ref[nn.Module]] = {}
        self._patches: Patches | None = None
        """On from `eval()` until the model is trained again."""
        self._evaluates = False
        """No gradients have been recorded since."""
        self._recorder.undo_by(self._off)

    def met(self, models: Iterable[nn.Module]) -> None:
        """These are trained: outermost modules, which may be wrappers of what the loop calls `model`."""
        for model in models:
            for one in _wrapped(model):
                self._models[id(one)] = weakref.ref(one)

    def end(self) -> None:
        """Off, for good."""
        self._off()
        self._models.clear()

    def on(self, module: nn.Module) -> None:
        """`eval()` of a module has returned, on the training thread."""
        known = self._models.get(id(module))
        if known is None or known() is not module:
            return
        self._off()
        self._patches = Patches()
        around = functools.partial(self._recorder.fence.around_in_graphs, anyone=False)
        self._patches.wrap(nn.Module, "train", lambda train: around(train, self._trains(known), lambda *_: None))
        self._backed.append(self._off)
        if not torch.is_grad_enabled():
            self._begins()
            return
        for kind in (torch.no_grad, torch.inference_mode):
            self._patches.wrap(kind, "__enter__", lambda enter: around(enter, lambda guard: True, self._entered(known)))

    def _off(self) -> None:
        self._evaluates = False
        self._backed.leave(self._off)
        if self._patches is not None:
            self._patches.restore()  # first: what fails is tried once more
            self._patches = None

    def _entered(self, known: weakref.ref[nn.Module]) -> Callable[..., None]:
        def after(token: bool, result: Any) -> None:
            module = known()
            if self._evaluates or module is None or module.training:
                return
            if self._patches is not None and not torch.is_grad_enabled():
                self._begins()

        return after

    def _begins(self) -> None:
        self._evaluates = True
        self._recorder.event(EVALUATES)

    def _trains(self, known: weakref.ref[nn.Module]) -> Callable[..., None]:
        def before(module: nn.Module, mode: bool = True) -> None:
            if not mode or module is not known():
                return
            if self._evaluates:
                self._recorder.log.mark(EVALUATED)
                self._recorder.event(EVALUATED)
            self._off()

        return before


def _wrapped(model: nn.Module) -> Iterator[nn.Module]:
    """A model, and what it is the wrapper of (of several GPUs, of a compiler): the only module in it, and so on."""
    yield model
    parts = list(model.children())
    if len(parts) == 1:
        yield from _wrapped(parts[0])

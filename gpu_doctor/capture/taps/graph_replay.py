"""Records the launches of CUDA graphs that the loop captured itself, which call no module and no optimizer.

A graph that was captured with an optimizer's step in it is a training step each time it is launched. The content of a
graph from an earlier cell is unknown: it counts as a training step if gradients are switched on. Graphs that a compiled
model or `make_graphed_callables` launches are parts of forwards and backwards, which are recorded themselves.
GPU: not yet run on one; proved on a simulated device in tests.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from gpu_doctor.capture.events import CALLED, DONE, PHASE, REPLAY, REPLAYED, STEP, STEPPED, call_code
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.steps import FORWARD


def tap(scope: TapScope) -> None:
    """Wraps `CUDAGraph.capture_begin`, `capture_end` and `replay`, if there is a device."""
    if not scope.accelerated:
        return
    graphs, around = Graphs(scope), functools.partial(scope.recorder.fence.around, training_thread_only=True)
    calls: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
        "capture_begin": (_graph, graphs.begun),
        "capture_end": (_graph, graphs.captured),
        "replay": (graphs.begins, graphs.ends),
    }
    for name, (before, after) in calls.items():
        scope.patches.wrap(torch.cuda.CUDAGraph, name, functools.partial(around, before=before, after=after))


def _graph(graph: Any, *args: Any, **kwargs: Any) -> Any:
    return graph


class Graphs:
    """CUDA graphs captured in one run, and the events of their launches."""

    def __init__(self, scope: TapScope) -> None:
        self._scope, self._recorder, self._log = scope, scope.recorder, scope.recorder.log
        self._before = 0
        """Number of optimizer steps before the capture in progress."""
        self._trains: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
        """For each graph, True if an optimizer stepped while it was captured."""

    def begun(self, graph: Any, result: None) -> None:
        """Stores the number of optimizer steps as a capture begins."""
        self._before = self._log.stepped

    def captured(self, graph: Any, result: None) -> None:
        """Records if an optimizer stepped within the capture that has ended."""
        self._trains[graph] = self._log.stepped > self._before

    def begins(self, graph: Any) -> tuple[int, int] | None:
        """Records the start of a launch, as a training step or as a forward.

        Returns:
            The graph's id and True if it is a training step; None if a forward or a backward launches it.
        """
        log = self._log
        if log.calling or log.backing:
            return None
        if log.ending and not log.pulled:
            self._recorder.check_end()
        if not log.pulled:
            log.steps += 1
        grad = torch.is_grad_enabled()
        steps = self._trains.get(graph, grad)
        self._recorder.facts.setdefault("device", f"cuda:{torch.cuda.current_device()}")
        self._recorder.event(PHASE if steps else call_code(grad, grad, grad), FORWARD if steps else None)
        if self._scope.replayed:
            self._scope.replayed.notify(self._recorder.note, "The device of a CUDA graph could not be read")
        log.mark(REPLAY, follow=True)
        return id(graph), steps

    def ends(self, begun: tuple[int, int], result: None) -> None:
        """Records the end of a launch."""
        (key, steps), log = begun, self._log
        log.mark(REPLAYED)
        now = log.clock()
        if not steps:
            log.note((CALLED, now, None))
            return
        log.note((DONE, now, None))
        log.note((STEP, now, key))
        log.note((STEPPED, now, key))
        log.trains, log.pulled = True, False

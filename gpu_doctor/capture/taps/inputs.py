"""Looks now and then at what the outermost modules are handed, and marks the graphs of their forwards.

Looking costs some microseconds a forward, so it is done in windows: the first steps, then a step of every 128. Outside
of one nothing of it runs: it hears what `taps.backward` listens to.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.capture.describe.nodes import newest
from gpu_doctor.capture.taps.graph_marks import GraphMarks
from gpu_doctor.capture.taps.shapes import Shapes
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import InputFacts, KeptGraphs

FIRST_STEPS: Final = 20
"""So many steps are looked at from the begin on."""
VARIED_STEPS: Final = 512
"""As many where shapes change."""
VARIED: Final = 3
"""Shapes among the first steps from which on they change: the full and the last batch are two."""
EVERY: Final = 128
"""Later a window every so many steps: some 10 us each."""
ROOM: Final = 40
"""Forwards of a window in which no step ends: a loop without an optimizer."""
MOST_TENSORS: Final = 64
"""Of one forward's arguments: models of tables have some dozens of columns."""
INDICES: Final = (torch.int32, torch.int64)
"""What an embedding can be asked with."""

_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]


class Looker:
    """Opens and closes windows and keeps what was seen in them."""

    def __init__(self, scope: TapScope) -> None:
        """Nothing is looked at yet."""
        self.recorder, self.stepped, self._hearing = scope.recorder, scope.stepped, scope.heard
        self.on = False
        self.next_step = 0
        """The step at whose end, or soon after, the next window opens."""
        self.trained: set[int] = set()
        """Ids of the modules that an optimizer steps."""
        self.learning_inputs: dict[int, Shapes] = {}
        """By module: what its training forwards were handed."""
        self.idle_inputs: dict[int, Shapes] = {}
        """The same of all other forwards."""
        self.learning, self.idling = GraphMarks(), GraphMarks()
        """On the graphs of forwards that are learned from, and of all others."""
        self.steps = self.forwards = 0
        self.room = ROOM
        self.began = 0
        self.clean = False
        """The step is looked at from its begin, and nothing was evaluated in it."""

    # ---- windows ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The run is over."""
        self.close()
        for marks in (self.learning, self.idling):
            if marks.found is None:
                marks.look()

    def open(self) -> None:
        """Forwards are looked at from now on."""
        self.room = ROOM
        if not self.on:
            self.on, self.clean = True, False
            self._hearing.append(self.heard)
            self.stepped.join(self.step_ended)

    def begin(self) -> None:
        """Opens the first window, where no step was looked at yet."""
        if not self.steps:
            self.open()

    def close(self) -> None:
        """Forwards are looked at no longer, until so many more steps."""
        self.next_step = self.recorder.step_count + EVERY
        if self.on:
            self.on = False
            self._hearing.leave(self.heard)  # at the run's end the list is empty already
            self.stepped.leave(self.step_ended)

    def turn(self, now: int) -> None:
        """Opens the next window when it is due; called at steps' ends (of steps that repeat, once a block)."""
        if not self.on and self.recorder.step_count >= self.next_step:
            self.learning.look()
            self.idling.look()
            self.open()

    def step_ended(self) -> None:
        """An optimizer has stepped, on the training thread, while a window is open."""
        now = self.recorder.clock()
        for shapes in self.learning_inputs.values():
            shapes.step((now - self.began) * 1e-9 if self.clean else None)
        timed, self.began, self.clean = self.clean, now, True
        self.room = ROOM
        self.steps += 1
        varied = any(len(shapes.counts) >= VARIED for shapes in self.learning_inputs.values())
        if self.steps > (VARIED_STEPS if varied else FIRST_STEPS) and timed:
            self.close()

    # ---- forwards -----------------------------------------------------------------------------------------------

    def heard(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """The forward of an outermost module has returned, on the training thread."""
        if _tracing():
            return
        if trained:
            self.trained.add(id(module))
        learns = module.training and torch.is_grad_enabled()
        if learns and not self.recorder.log.trains:
            self.recorder.forward_number = newest(tensors_in(output))
        if self.room <= 0:
            self.close()
            for shapes in self.learning_inputs.values():
                shapes.cut()
            return
        self.room -= 1
        self.forwards += 1
        self.clean = self.clean and (learns or module.training)
        if torch.is_grad_enabled():
            self.learning.put(output, self.steps) if learns else self.idling.put(output, self.forwards)
        handed = list(itertools.islice(tensors_in((args, kwargs)), MOST_TENSORS))
        if handed and not handed[0].is_nested:  # a nested tensor has no shape
            inputs = self.learning_inputs if learns else self.idle_inputs
            indices = sum(one.numel() for one in handed if one.dtype in INDICES)
            inputs.setdefault(id(module), Shapes()).add(handed[0], indices)

    # ---- facts --------------------------------------------------------------------------------------------------

    def inputs(self) -> InputFacts | None:
        """Inputs of the module that was looked at most, a trained one where there is one; None if none was."""
        return self._most(self.learning_inputs) or self._most(self.idle_inputs)

    def idle(self) -> InputFacts | None:
        """The same of the forwards that nothing is learned from."""
        return self._most(self.idle_inputs)

    def _most(self, inputs: dict[int, Shapes]) -> InputFacts | None:
        found = [one for key, one in inputs.copy().items() if key in self.trained or not self.trained]
        return max(found, key=lambda one: one.looked_at).facts(ROOM) if found else None

    def kept_graphs(self) -> KeptGraphs | None:
        """Graphs of the forwards that are learned from, where there are any, as of the last look."""
        return self.learning.found or self.idling.found

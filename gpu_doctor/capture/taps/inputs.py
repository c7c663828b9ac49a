"""Samples the inputs of the outermost modules, and marks the graphs of their forwards.

A sample costs some microseconds a forward, so forwards are sampled in windows: the first steps, then a step in every
128. Outside a window, no code of this file runs during a forward.
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
"""Length of the first window, in steps."""
VARIED_STEPS: Final = 512
"""Length of the first window if shapes vary, in steps."""
VARIED: Final = 3
"""Distinct shapes from which on shapes count as varying: the full and the last batch make two."""
EVERY: Final = 128
"""Steps between later windows, of some 10 us each."""
ROOM: Final = 40
"""Maximum number of forwards sampled until an optimizer steps; a loop without an optimizer never starts over."""
MOST_TENSORS: Final = 64
"""Maximum number of tensors read from one forward's arguments: models of tables have some dozens of columns."""
INDICES: Final = (torch.int32, torch.int64)
"""Types of the indices that an embedding accepts."""

_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]


class InputSampler:
    """Samples of the inputs and graphs of forwards, and the windows in which they are taken."""

    def __init__(self, scope: TapScope) -> None:
        """Begins without an open window."""
        self.recorder, self.stepped, self._forwarded = scope.recorder, scope.stepped, scope.forwarded
        self.on = False
        self.next_step = 0
        """Number of the step at whose end, or soon after, the next window opens."""
        self.trained: set[int] = set()
        """Ids of the modules that an optimizer steps."""
        self.learning_inputs: dict[int, Shapes] = {}
        """Shapes of the inputs of training forwards, by the module's id."""
        self.idle_inputs: dict[int, Shapes] = {}
        """Shapes of the inputs of all other forwards, by the module's id."""
        self.learning, self.idling = GraphMarks(), GraphMarks()
        """Marks on the graphs of training forwards, and on those of all others."""
        self.steps = self.forwards = 0
        """Steps and forwards sampled so far."""
        self.room = ROOM
        """Forwards that may still be sampled in this step."""
        self.began = 0
        """Start of the step, in ns."""
        self.clean = False
        """True if the step was sampled from its start, and no evaluation ran in it."""

    # ---- windows ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Closes the window when the run is over, and counts the marked graphs if that was not done yet."""
        self.close()
        for marks in (self.learning, self.idling):
            if marks.found is None:
                marks.count_alive()

    def open(self) -> None:
        """Opens a window: forwards are sampled from now on."""
        self.room = ROOM
        if not self.on:
            self.on, self.clean = True, False
            self._forwarded.append(self.forward)
            self.stepped.join(self.step_ended)

    def begin(self) -> None:
        """Opens the first window, unless a step was sampled already."""
        if not self.steps:
            self.open()

    def close(self) -> None:
        """Closes the window; the next one opens after `EVERY` more steps."""
        self.next_step = self.recorder.step_count + EVERY
        if self.on:
            self.on = False
            self._forwarded.leave(self.forward)  # at the run's end the list is empty already
            self.stepped.leave(self.step_ended)

    def turn(self, now: int) -> None:
        """Opens the next window when it is due; called as steps end (for repeating steps, once a block)."""
        if not self.on and self.recorder.step_count >= self.next_step:
            self.learning.count_alive()
            self.idling.count_alive()
            self.open()

    def step_ended(self) -> None:
        """Ends a step in the open window, and closes the window after its last step."""
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

    def forward(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """Samples the inputs and marks the graph of a forward that has returned; closes a window with no room left."""
        if _tracing():
            return
        if trained:
            self.trained.add(id(module))
        trains = module.training and torch.is_grad_enabled()
        if trains and not self.recorder.log.trains:
            self.recorder.forward_number = newest(tensors_in(output))
        if self.room <= 0:
            self.close()
            for shapes in self.learning_inputs.values():
                shapes.cut()
            return
        self.room -= 1
        self.forwards += 1
        self.clean = self.clean and (trains or module.training)
        if torch.is_grad_enabled():
            self.learning.put(output, self.steps) if trains else self.idling.put(output, self.forwards)
        given = list(itertools.islice(tensors_in((args, kwargs)), MOST_TENSORS))
        if given and not given[0].is_nested:  # a nested tensor has no shape
            inputs = self.learning_inputs if trains else self.idle_inputs
            indices = sum(tensor.numel() for tensor in given if tensor.dtype in INDICES)
            inputs.setdefault(id(module), Shapes()).add(given[0], indices)

    # ---- facts --------------------------------------------------------------------------------------------------

    def inputs(self) -> InputFacts | None:
        """Returns the inputs of the module sampled most often, a trained one if there is any; None if none was."""
        return self._most(self.learning_inputs) or self._most(self.idle_inputs)

    def idle(self) -> InputFacts | None:
        """Returns the inputs of the module sampled most often in forwards that are not trained on; None if none was."""
        return self._most(self.idle_inputs)

    def _most(self, inputs: dict[int, Shapes]) -> InputFacts | None:
        """Returns the facts of the module with the most samples, among the trained ones if any is trained."""
        found = [shapes for key, shapes in inputs.copy().items() if key in self.trained or not self.trained]
        return max(found, key=lambda shapes: shapes.looked_at).facts(ROOM) if found else None

    def kept_graphs(self) -> KeptGraphs | None:
        """Returns how many marked graphs stay alive: of training forwards if there are any, else of the others."""
        return self.learning.found or self.idling.found

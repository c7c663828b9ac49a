"""Looks now and then at what the outermost modules are handed, and whether gradients of evaluations are ever used.

Looking costs some microseconds a forward, so it is done in windows: the first steps, then a step of every 128, and the
first forwards after `model.eval()`. Outside of one nothing of it runs: it hears what `taps.backward` listens to.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.capture.describe.nodes import newest
from gpu_doctor.capture.patching import Patches
from gpu_doctor.capture.taps.graph_marks import GraphMarks
from gpu_doctor.capture.taps.shapes import Shapes
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import EvaluationFacts, InputFacts, KeptGraphs

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
PASS_FORWARDS: Final = 8
"""Forwards of an evaluation pass that are looked at."""
FIRST_PASSES: Final = 16
"""Calls of `eval()` after which it is looked, then one in so many."""
MOST_WATCHED: Final = 512
"""Evaluation forwards looked at in a run."""
FEW_FORWARDS: Final = 3
"""After so many forwards in which no optimizer stepped the loop may well be one that only predicts."""
MOST_TENSORS: Final = 64
"""Of one forward's arguments: models of tables have some dozens of columns."""
INDICES: Final = (torch.int32, torch.int64)
"""What an embedding can be asked with."""
MOST_NODES: Final = 8
"""Tensors of an output that are followed: loss and logits come first, caches last."""

_tracing: Callable[[], bool] = vars(torch.jit)["is_tracing"]


class Watch:
    """Whether anything ever asked for the gradients that one evaluation forward recorded. Autograd calls it."""

    __slots__ = ("open", "used")

    def __init__(self) -> None:
        self.used, self.open = False, True

    def __call__(self, gradients: Any) -> None:
        """Notes that gradients came back to what it was put on."""
        self.used = True


class Looker:
    """Opens and closes windows and keeps what was seen in them."""

    def __init__(self, scope: TapScope) -> None:
        """What is called after forwards and optimizer steps of the scope holds ours while a window is open."""
        self.recorder, self.stepped, self._hearing = scope.recorder, scope.stepped, scope.heard
        self.recorder.undo_by(self.settle)
        self.on = False
        self.next_step = 0
        """The step at whose end, or soon after, the next window opens."""
        self.modules: dict[int, weakref.ref[nn.Module]] = {}
        self.predicts: Callable[[], None] = lambda: None
        """Called while what a loop predicts with is alive for sure: a model made in a function is gone at the end."""
        self.trained: set[int] = set()
        self.seen: dict[int, Shapes] = {}
        """By module: what its training forwards were handed."""
        self.idle: dict[int, Shapes] = {}
        """As `seen`, of all other forwards."""
        self.learning, self.idling = GraphMarks(), GraphMarks()
        """On the graphs of forwards that are learned from, and of all others."""
        self.backwards: Patches | None = None
        self.pending: list[Watch] = []
        """Of the open step: a backward that comes now may use them inside, past their output."""
        self.watched: list[Watch] = []
        self.forwards = self.looks = self.steps = self.passes = self.in_pass = 0
        self.room = ROOM
        self.began = 0
        self.clean = False
        """The step is looked at from its begin, and nothing was evaluated in it."""

    # ---- windows ------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """All off, for good."""
        self.close()
        self.settle()
        self.modules.clear()
        for marks in (self.learning, self.idling):
            if marks.found is None:
                marks.look()

    def open(self) -> None:
        """Forwards are looked at from now on."""
        self.in_pass, self.room = 0, ROOM
        if not self.on:
            self.on, self.clean = True, False
            self._hearing.append(self.heard)
        self.stepped.join(self.step_ended)

    def close(self) -> None:
        """No longer, until so many more steps; backwards are heard until the step ends."""
        self.next_step = self.recorder.step_count + EVERY
        if self.on:
            self.on = False
            self._hearing.leave(self.heard)  # at the run's end the list is empty already

    def turn(self, now: int) -> None:
        """Opens the next window when it is due; called at steps' ends (of steps that repeat, once a block)."""
        if not self.on and self.recorder.step_count >= self.next_step:
            self.learning.look()
            self.idling.look()
            self.open()

    def settle(self) -> None:
        """The step has ended, or trains: no later backward uses its evaluation forwards but through their outputs."""
        for watch in self.pending:
            watch.open = False
        self.pending.clear()
        if self.backwards is not None:
            self.backwards.restore()
            self.backwards = None

    def step_ended(self) -> None:
        """An optimizer has stepped, on the training thread, and a window is open or was in this step."""
        self.settle()
        if not self.on:
            self.stepped.leave(self.step_ended)
            return
        now = self.recorder.clock()
        for shapes in self.seen.values():
            shapes.step((now - self.began) * 1e-9 if self.clean else None)
        timed, self.began, self.clean = self.clean, now, True
        self.in_pass, self.room = 0, ROOM
        self.steps += 1
        varied = any(len(shapes.counts) >= VARIED for shapes in self.seen.values())
        if self.steps > (VARIED_STEPS if varied else FIRST_STEPS) and timed:
            self.close()

    def evaluates(self) -> None:
        """`eval()` was called on a module."""
        self.passes += 1
        if (self.passes <= FIRST_PASSES or self.passes % FIRST_PASSES == 0) and self.forwards < MOST_WATCHED:
            self.open()

    # ---- forwards -----------------------------------------------------------------------------------------------

    def heard(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """The forward of an outermost module has returned, on the training thread."""
        if _tracing():
            return
        self.modules[id(module)] = weakref.ref(module)
        if trained:
            self.trained.add(id(module))
        learns = module.training and torch.is_grad_enabled()
        if learns:
            self.settle()  # the backward to come is that of this forward
            if not self.recorder.log.trains:
                self.recorder.forward_number = newest(tensors_in(output))
        if self.room <= 0:
            if not self.pending:
                self.close()
                for shapes in self.seen.values():
                    shapes.cut()
                self.predicts()
            return
        self.looks += 1
        self.room -= 1
        if torch.is_grad_enabled():
            self.learning.put(output, self.steps) if learns else self.idling.put(output, self.looks)
        if not learns and not module.training:
            self.clean = False
            self.evaluated(output)
        handed = list(itertools.islice(tensors_in((args, kwargs)), MOST_TENSORS))
        if handed and not handed[0].is_nested:  # a nested tensor has no shape
            logs = self.seen if learns else self.idle
            indices = sum(one.numel() for one in handed if one.dtype in INDICES)
            logs.setdefault(id(module), Shapes()).add(handed[0], indices)
        if self.room == ROOM - FEW_FORWARDS:
            self.predicts()

    def evaluated(self, output: Any) -> None:
        """A forward in evaluation mode: follows the gradients that it recorded, if it did."""
        self.in_pass += 1
        if self.in_pass > PASS_FORWARDS or self.forwards >= MOST_WATCHED:
            return
        self.forwards += 1
        if not torch.is_grad_enabled():
            return
        nodes = (node for tensor in tensors_in(output) if (node := tensor.grad_fn) is not None)
        followed = list(itertools.islice(nodes, MOST_NODES))
        if not followed:
            return
        watch = Watch()
        for node in followed:
            node.register_prehook(self.recorder.fence.quietly(watch))
        self.watched.append(watch)
        self.pending.append(watch)
        if self.backwards is None:
            self.backwards = Patches()
            for name in ("backward", "grad"):
                self.backwards.wrap(torch.autograd, name, self.touching)

    def touching(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A backward in the step of an evaluation forward may use its inside (features taken by hooks): not judged."""

        def begins(*args: Any, **kwargs: Any) -> None:
            for watch in self.pending:
                watch.used = True

        return self.recorder.fence.around(original, begins, lambda token, result: None, anyone=False)

    # ---- facts --------------------------------------------------------------------------------------------------

    def shown(self) -> list[nn.Module]:
        """The modules alive that were seen with a tensor."""
        keys = [key for key in self.modules if key in self.idle or key in self.seen]
        return [one for key in keys if (one := self.modules[key]()) is not None]

    def inputs(self) -> InputFacts | None:
        """InputFacts of the module that was looked at most, a trained one where there is one; None if none was."""
        return self._most(self.seen) or self._most(self.idle)

    def idle_inputs(self) -> InputFacts | None:
        """As `inputs`, of the forwards that nothing is learned from; None where there was none."""
        return self._most(self.idle)

    def _most(self, logs: dict[int, Shapes]) -> InputFacts | None:
        found = [one for key, one in logs.items() if key in self.trained or not self.trained]
        return max(found, key=lambda one: one.looked_at).facts(ROOM) if found else None

    def kept_graphs(self) -> KeptGraphs | None:
        """As of the last look: of the forwards that are learned from, where there are any."""
        return self.learning.found or self.idling.found

    def evaluation(self) -> EvaluationFacts | None:
        """What is known by now; None where no forward was looked at."""
        if not self.looks:
            return None
        unused = sum(not watch.used and not watch.open for watch in self.watched)
        edge_s = self.recorder.step_clock.evaluation_edge_ns * 1e-9
        return EvaluationFacts(forwards=self.forwards, with_gradients=unused, edge_s=edge_s)

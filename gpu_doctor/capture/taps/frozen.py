"""Looks whether a model that nobody trains is handed the same samples again, and gives the same for them.

A frozen teacher, or a backbone under a trained head: what it computes for a sample that is not augmented is the same
in every epoch. Its calls are looked at from the first step of an optimizer on (of each: a teacher may have been trained
before) until that is known, and one in eight from then on: samples may come for a while only. On a CPU a look costs
some 20 us; on a GPU the looks stay there, and are read when the loop has ended, so that nothing waits for it.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.capture.describe.returning import NUMBERS, OUTPUTS, Returning, Rows, rows_of, same, weights_of
from gpu_doctor.capture.events import OURS
from gpu_doctor.capture.taps.listener import Listener
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import FrozenForward

MOST_MODELS: Final = 4
MOST_INPUTS: Final = 4
LATE: Final = 16
"""Steps after the first one of an optimizer after which no further model is looked for."""
MOST_CALLS: Final = 20_000
"""Nobody looks longer: an epoch has more steps than that."""
ROOM: Final = 16 << 20
"""Bytes of looks that may lie on a device: some 100 000 rows."""
SELDOM: Final = 8
"""Of the calls after that one in so many is looked at, and at least as many of a pass."""
TRY: Final = 8
"""Calls after which it is asked whether the model takes"""
WORTH: Final = 0.03
"""this part of the time: else nobody looks any longer. Only on a CPU, where the host's clock tells."""


class Followed:
    """One frozen model."""

    def __init__(self, module: nn.Module, listener: Listener, now: int) -> None:
        """Looked at from `now` on, by the host's clock."""
        self.ref, self.name, self.listener = weakref.ref(module), type(module).__name__, listener
        self.began, self.calls = now, 0
        self._before = listener.calls - 1, listener.wall_ns
        """Of the listener until then: while it was trained, perhaps."""
        self.returning = Returning()
        self.kept: list[tuple[int, Rows, torch.Tensor]] = []
        """Looks that lie on a device, and"""
        self.kept_bytes = 0
        self.over = False
        """Nobody looks any longer."""
        self.unseen = False
        """It could not be told what comes again."""
        self.output_bytes = 0.0
        """Of a sample's result."""
        self._weights = weights_of(module)

    def add(self, step: int, inputs: Rows, output: torch.Tensor, call: int | None = None) -> None:
        """A look, in the CPU's memory."""
        before = self.returning.found
        self.returning.add(step, inputs, output, call)
        if self.returning.found and not before:
            self.unseen = self.ref() is None
            self.over = self.unseen or not self.steady()
            self.returning.found = not self.over
        self.over = self.over or self.returning.over

    def passes_by(self) -> bool:
        """Whether the next call needs no look: what came again is only looked at now and then, to the end."""
        often = max(1, min(SELDOM, int(self.returning.period) // SELDOM)) if self.returning.found else 1
        if (self.calls + 1) % often == 0:
            return False
        self.calls += 1
        return True

    def steady(self) -> bool:
        """Whether its weights are as they were; of a model that is gone, nothing tells."""
        module = self.ref()
        return module is None or same(self._weights, weights_of(module))

    def heard(self) -> FrozenForward:
        """What is known of it by now."""
        calls, wall_ns = self.listener.calls - self._before[0], self.wall_ns
        passes = calls / max(self.returning.period, 1.0)
        return FrozenForward(self.name, calls, wall_ns * 1e-9, passes, self.output_bytes)

    @property
    def wall_ns(self) -> int:
        """What its forwards took since it is followed."""
        return self.listener.wall_ns - self._before[1]


class Frozen:
    """The frozen models of a run."""

    def __init__(self, scope: TapScope) -> None:
        """They are heard with all others, once an optimizer has stepped."""
        self._scope, self._recorder = scope, scope.recorder
        self._models: dict[int, Followed] = {}
        self._steps, self._late = 0, LATE

    def stepped(self) -> None:
        """An optimizer has stepped, on the training thread."""
        self._steps += 1
        if self.called not in self._scope.heard:
            self._scope.heard.append(self.called)
        elif self._steps > self._late and all(one.over for one in self._models.values()):
            self._unhear()

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step for the first time, on the training thread."""
        self._late = self._steps + LATE
        self._scope.stepped.join(self.stepped)

    def called(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """The forward of an outermost module has returned, on the training thread."""
        if trained:
            return
        one = self._models.get(id(module))
        if one is not None and (one.over or one.passes_by()):
            return
        log = self._recorder.log
        begin = log.clock()
        if one is None:
            listener = self._scope.models.get(module)
            full = len(self._models) >= MOST_MODELS or self._steps > self._late
            if listener is None or full or not listener.parameters:
                return
            one = self._models[id(module)] = Followed(module, listener, begin)
        try:
            self._look(one, list(tensors_in((args, kwargs))), output)
        except Exception:
            one.over = one.unseen = True
            raise
        log.note((OURS, log.clock(), begin))

    def _look(self, one: Followed, inputs: list[torch.Tensor], output: Any) -> None:
        one.calls += 1
        results = [tensor for tensor in tensors_in(output) if tensor.is_floating_point() and not tensor.is_nested]
        if any(tensor.requires_grad for tensor in (*inputs, *results)):
            one.over = True  # gradients go through it: its result is of use for this step alone
            return
        result = next((tensor for tensor in results if tensor.dim()), None)
        read = _read(inputs, result) if result is not None else None
        if result is None or read is None or (one.calls > MOST_CALLS and not one.returning.found):
            one.over = one.unseen = True
            return
        one.output_bytes = result.numel() * result.element_size() / max(result.shape[0], 1)
        if result.is_cpu:
            one.add(self._steps, *read, one.calls)
            if one.calls == TRY and not self._worth(one):
                one.over = True
            return
        one.kept.append((self._steps, *read))
        one.kept_bytes += sum(tensor.numel() * tensor.element_size() for tensor in (*read[0], read[1]))
        one.over = one.kept_bytes >= ROOM

    def _worth(self, one: Followed) -> bool:
        return one.wall_ns >= WORTH * (self._recorder.clock() - one.began)

    def facts(self) -> tuple[FrozenForward, ...] | None:
        """Those whose samples came again, with the same results; None where that of one could not be seen."""
        found = []
        for one in list(self._models.values()):
            if one.unseen or one.kept:
                return None
            if one.returning.still(one.calls) and one.steady():
                found.append(one.heard())
        return tuple(found)

    def end(self) -> None:
        """The loop has ended: what lies on a device is read."""
        self._unhear()
        for one in self._models.values():
            kept, one.kept, full = one.kept, [], one.over
            for step, inputs, output in kept:
                if not one.returning.over:
                    one.add(step, [each.cpu() for each in inputs], output.cpu())
            one.unseen = one.unseen or bool(kept and full and not one.returning.over)

    def _unhear(self) -> None:
        self._scope.heard.leave(self.called)
        self._scope.stepped.leave(self.stepped)


def _read(inputs: list[torch.Tensor], result: torch.Tensor) -> tuple[Rows, torch.Tensor] | None:
    """Some numbers of each row of the inputs, and of their result; None where they cannot be told apart.

    What has no row for each sample (a mask over positions) is left out: if it changes, so do results.
    """
    if result.is_cuda and torch.cuda.is_current_stream_capturing():  # our looks would go into the user's graph
        return None
    count, of = result.shape[0], rows_of(result, OUTPUTS)
    batched = [one for one in inputs if not one.is_nested and one.dim() and one.shape[0] == count][:MOST_INPUTS]
    rows = [rows_of(one, NUMBERS) for one in batched]
    known = [one for one in rows if one is not None]
    return None if of is None or not known or len(known) < len(batched) else (known, of)


def tap(scope: TapScope) -> None:
    """Fact `frozen` of the setup."""
    frozen = Frozen(scope)
    scope.optimized.append(frozen.optimized)
    failed = "Whether a frozen model's samples came again could not be read"
    scope.add_fact("frozen", frozen.facts, frozen.end, failed)

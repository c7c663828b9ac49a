"""Checks whether a model that nobody trains is handed the same samples again, and gives the same for them.

A frozen teacher, or a backbone under a trained head: what it computes for a sample that is not augmented is the same
in every epoch. Its calls are compared from the first step of an optimizer on (of each: a teacher may have been trained
before). On a CPU that takes some 20 us a call; on a GPU the numbers stay there and are read when the run is over and
nothing counts as the loop's any more, so that no step waits for them.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from gpu_doctor.capture.describe.batches import tensors_in
from gpu_doctor.capture.describe.returning import NUMBERS, OUTPUTS, Returning, Rows, rows_of, weights_of
from gpu_doctor.capture.taps.listener import Listener
from gpu_doctor.capture.taps.tap import TapScope
from gpu_doctor.recording.setup import FrozenForward

MOST_MODELS: Final = 4
MOST_INPUTS: Final = 4
LATE: Final = 16
"""Steps after the first one of an optimizer after which no further model is followed."""
MOST_CALLS: Final = 20_000
"""Calls of a model that are followed."""
SURE: Final = 3.0
"""Passes from which on rows are no longer counted: then it is only checked, at"""
SELDOM: Final = 8
"""one of so many calls, that they still come, with the same results."""
ROOM: Final = 16 << 20
"""Bytes of numbers that may lie on a device: some 100 000 rows."""
TRY: Final = 8
"""Calls after which it is asked whether the model takes"""
WORTH: Final = 0.03
"""this part of the time: else it is followed no longer. Only on a CPU, where the host's clock tells."""


class Followed:
    """One frozen model."""

    def __init__(self, module: nn.Module, listener: Listener, now: int) -> None:
        """Followed from `now` on, by the host's clock."""
        self.name, self.began, self._listener = type(module).__name__, now, listener
        self._before = listener.calls - 1, listener.wall_ns
        """Of the listener until then: while it was trained, perhaps."""
        self.returning = Returning()
        self.calls, self.output_bytes = 0, 0.0
        """Calls that were compared, and the bytes of a sample's result."""
        self.over = self.unseen = False
        """Nothing more is compared; it cannot be told what comes again."""
        self.kept: list[tuple[int, Rows, torch.Tensor]] = []
        """Numbers that lie on a device, and"""
        self._kept_bytes = 0
        self._weights: tuple[list[torch.Tensor], ...] = ()

    def compare(self, step: int, module: nn.Module, given: Any, output: Any) -> None:
        """A call has returned; `given` are its arguments."""
        self.calls += 1
        if self.returning.sure and self.calls % SELDOM:
            self.returning.calls += 1
            return
        inputs = list(tensors_in(given))
        results = [tensor for tensor in tensors_in(output) if tensor.is_floating_point() and not tensor.is_nested]
        if any(tensor.requires_grad for tensor in (*inputs, *results)):
            self.over, self.returning = True, Returning()  # gradients go through it: its result is of use this once
            return
        result = next((tensor for tensor in results if tensor.dim()), None)
        read = _read(inputs, result) if result is not None else None
        if result is None or read is None:
            self.over = self.unseen = True
            return
        self.output_bytes = result.numel() * result.element_size() / max(result.shape[0], 1)
        seldom = self.calls & (self.calls - 1) == 0  # the first call and ever fewer later ones
        if seldom:
            self._weights = (*self._weights[:1], weights_of(module))
        if result.is_cpu:
            self.returning.add(step, *read)
            if seldom and self.returning.passes >= SURE:
                self.returning.sure = self.calls
            self.over = self.returning.differs or self.calls >= MOST_CALLS
        else:
            self.kept.append((step, *read))
            self._kept_bytes += sum(tensor.nbytes for tensor in (*read[0], read[1]))
            self.over = self._kept_bytes >= ROOM or self.calls >= MOST_CALLS

    def worth(self, now: int) -> bool:
        """Whether it takes a part of the time that is worth finding."""
        return self._wall_ns >= WORTH * (now - self.began)

    def read(self) -> None:
        """Compares what lies on a device, one copy an input; waits for the device."""
        kept, self.kept = self.kept, []
        counts = [len(output) for _, _, output in kept]
        try:
            inputs = [torch.cat(one).cpu().split(counts) for one in zip(*(rows for _, rows, _ in kept), strict=True)]
            outputs = torch.cat([output for _, _, output in kept]).cpu().split(counts)
        except (RuntimeError, ValueError):  # rows of several widths, or of another number of inputs
            self.unseen = True
            return
        for at, (step, _, _) in enumerate(kept):
            self.returning.add(step, [one[at] for one in inputs], outputs[at])

    def found(self) -> FrozenForward | None:
        """What is known of it, None where samples do not come again; only where nothing lies on a device."""
        passes, steady = self.returning.passes, len(self._weights) > 1
        if passes <= 1.0 or not (steady and all(map(torch.equal, *self._weights))):
            return None
        calls = self._listener.calls - self._before[0]
        passes *= max(calls / self.calls, 1.0)  # of further calls it is taken that they go on alike
        return FrozenForward(self.name, calls, self._wall_ns * 1e-9, passes, self.output_bytes)

    @property
    def _wall_ns(self) -> int:
        """What its forwards took since it is followed."""
        return self._listener.wall_ns - self._before[1]


class Frozen:
    """The frozen models of a run."""

    def __init__(self, scope: TapScope) -> None:
        """Made on the thread that the run began on; models are followed once an optimizer has stepped."""
        self._scope, self._recorder, self._thread = scope, scope.recorder, get_ident()
        self._models: dict[int, Followed] = {}
        self._steps, self._late = 0, LATE

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step for the first time, on the training thread."""
        self._late = self._steps + LATE
        self._scope.stepped.join(self.stepped)

    def stepped(self) -> None:
        """An optimizer has stepped, on the training thread."""
        self._steps += 1
        self._scope.heard.join(self.called)
        if self._steps > self._late and all(one.over for one in self._models.values()):
            self.end()

    def called(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """The forward of an outermost module has returned, on the training thread."""
        one = self._models.get(id(module))
        if trained or (one is not None and one.over):
            return
        if one is None:
            listener = self._scope.models.get(module)
            full = len(self._models) >= MOST_MODELS or self._steps > self._late
            if listener is None or full or not listener.parameters:
                return
            one = self._models[id(module)] = Followed(module, listener, self._recorder.clock())
        try:
            one.compare(self._steps, module, (args, kwargs), output)
        except Exception:
            one.over = one.unseen = True
            raise
        if one.calls == TRY and not one.kept and not one.worth(self._recorder.clock()):
            one.over = True

    def facts(self) -> tuple[FrozenForward, ...] | None:
        """Those whose samples came again, with the same results; None where that of one could not be seen, or not yet.

        What lies on a device is read by the thread of the run alone, when no tap counts what that thread does.
        """
        over = self._recorder.retired and get_ident() == self._thread
        models = list(self._models.values())
        for one in models:
            if over and one.kept:
                one.read()
        unseen = any(one.unseen or one.kept for one in models)
        found = None if unseen else tuple(told for one in models if (told := one.found()) is not None)
        if over:
            self._recorder.facts["frozen"] = found
        return found

    def end(self) -> None:
        """No model is followed any longer."""
        self._scope.heard.leave(self.called)
        self._scope.stepped.leave(self.stepped)


def _read(inputs: list[torch.Tensor], result: torch.Tensor) -> tuple[Rows, torch.Tensor] | None:
    """Some numbers of each row of the inputs, and of their result; None where they cannot be told apart.

    What has no row for each sample (a mask over positions) is left out: if it changes, so do results.
    """
    if result.is_cuda and torch.cuda.is_current_stream_capturing():  # our copies would go into the user's graph
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
    scope.recorder.facts["frozen"] = frozen.facts
    scope.at_end(frozen.end)

"""Detects frozen models that get the same samples again in later epochs and return the same results for them.

Examples are a frozen teacher, or a backbone under a trained head: its result for a sample that is not augmented is the
same in every epoch. Calls are compared from an optimizer's first step on, and from each further optimizer's, because a
teacher may have been trained before. On a CPU a comparison takes some 20 us a call. On a GPU the numbers stay on the
device and are read after the run, so that no step waits for them.
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
"""Maximum number of models that are followed."""
MOST_INPUTS: Final = 4
"""Maximum number of input tensors that are compared."""
LATE: Final = 16
"""Steps after an optimizer's first step in which a model may still be added."""
MOST_CALLS: Final = 20_000
"""Maximum number of calls of a model that are compared."""
SURE: Final = 3.0
"""Passes over the samples after which rows are no longer counted, but only checked once in `SELDOM` calls."""
SELDOM: Final = 8
"""Calls from one check to the next, once the samples are known to come again with the same results."""
ROOM: Final = 16 << 20
"""Maximum size of the numbers on a device, in bytes: some 100 000 rows."""
TRY: Final = 8
"""Calls after which a model is dropped if it takes less than the share `WORTH` of the time. Only on a CPU, where the
host's clock shows that."""
WORTH: Final = 0.03
"""Smallest share of the time that is worth reporting, 0 to 1."""


class Followed:
    """One frozen model whose calls are compared."""

    def __init__(self, module: nn.Module, listener: Listener, now: int) -> None:
        """Begins at `now`, in ns of the host's clock."""
        self.name, self.began, self._listener = type(module).__name__, now, listener
        self._before = listener.calls - 1, listener.wall_ns
        """Calls and time (ns) of the listener before, when the model may have been trained."""
        self.returning = Returning()
        self.calls, self.output_bytes = 0, 0.0
        """Number of calls that were compared, and size of one sample's result in bytes."""
        self.over = self.unseen = False
        """True if no more calls are compared, and True if samples and results could not be compared, respectively."""
        self.stored: list[tuple[int, Rows, torch.Tensor]] = []
        """Numbers that lie on a device until the run ends: the step, the inputs' rows and the result's."""
        self._stored_bytes = 0
        self._weights: tuple[list[torch.Tensor], ...] = ()
        """Numbers of the weights at the first call and at a later one."""

    def compare(self, step: int, module: nn.Module, given: Any, output: Any) -> None:
        """Compares a call that has returned with earlier ones, or stores its numbers on the device.

        Args:
            step: Number of optimizer steps so far.
            module: The model.
            given: Its arguments.
            output: Its output.
        """
        self.calls += 1
        if self.returning.sure and self.calls % SELDOM:
            self.returning.calls += 1
            return
        inputs = list(tensors_in(given))
        results = [tensor for tensor in tensors_in(output) if tensor.is_floating_point() and not tensor.is_nested]
        if any(tensor.requires_grad for tensor in (*inputs, *results)):
            self.over, self.returning = True, Returning()  # gradients flow through it: a stored result would not do
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
            self.stored.append((step, *read))
            self._stored_bytes += sum(tensor.nbytes for tensor in (*read[0], read[1]))
            self.over = self._stored_bytes >= ROOM or self.calls >= MOST_CALLS

    def worth(self, now: int) -> bool:
        """Returns True if the model takes a share of the time that is worth reporting."""
        return self._wall_ns >= WORTH * (now - self.began)

    def read(self) -> None:
        """Copies the numbers from the device, once for each input, and compares them; waits for the device."""
        stored, self.stored = self.stored, []
        counts = [len(output) for _, _, output in stored]
        try:
            inputs = [
                torch.cat(column).cpu().split(counts) for column in zip(*(rows for _, rows, _ in stored), strict=True)
            ]
            outputs = torch.cat([output for _, _, output in stored]).cpu().split(counts)
        except (RuntimeError, ValueError):  # rows of several widths, or of another number of inputs
            self.unseen = True
            return
        for at, (step, _, _) in enumerate(stored):
            self.returning.add(step, [rows[at] for rows in inputs], outputs[at])

    def found(self) -> FrozenForward | None:
        """Returns the facts about the model; None if its samples do not come again or its weights change.

        Numbers that lie on a device must have been read before.
        """
        passes, steady = self.returning.passes, len(self._weights) > 1
        if passes <= 1.0 or not (steady and all(map(torch.equal, *self._weights))):
            return None
        calls = self._listener.calls - self._before[0]
        passes *= max(calls / self.calls, 1.0)  # assumes that calls which were not compared go on alike
        return FrozenForward(self.name, calls, self._wall_ns * 1e-9, passes, self.output_bytes)

    @property
    def _wall_ns(self) -> int:
        """Host time of its forwards since it is followed, in ns."""
        return self._listener.wall_ns - self._before[1]


class Frozen:
    """The frozen models of a run."""

    def __init__(self, scope: TapScope) -> None:
        """Begins without models; must be made on the thread that the run began on."""
        self._scope, self._recorder, self._thread = scope, scope.recorder, get_ident()
        self._models: dict[int, Followed] = {}
        self._steps, self._late = 0, LATE

    def optimized(self, optimizer: torch.optim.Optimizer) -> None:
        """Allows models to be added again: an optimizer is about to step for the first time."""
        self._late = self._steps + LATE
        self._scope.stepped.join(self.stepped)

    def stepped(self) -> None:
        """Counts an optimizer's step; begins to listen to forwards, and stops when no model is left to compare."""
        self._steps += 1
        self._scope.forwarded.join(self.called)
        if self._steps > self._late and all(model.over for model in self._models.values()):
            self.end()

    def called(self, module: nn.Module, trained: bool, args: Any, kwargs: Any, output: Any) -> None:
        """Compares a forward of an outermost module that is not trained; adds the module the first time."""
        model = self._models.get(id(module))
        if trained or (model is not None and model.over):
            return
        if model is None:
            listener = self._scope.models.get(module)
            full = len(self._models) >= MOST_MODELS or self._steps > self._late
            if listener is None or full or not listener.parameters:
                return
            model = self._models[id(module)] = Followed(module, listener, self._recorder.clock())
        try:
            model.compare(self._steps, module, (args, kwargs), output)
        except Exception:
            model.over = model.unseen = True
            raise
        if model.calls == TRY and not model.stored and not model.worth(self._recorder.clock()):
            model.over = True

    def facts(self) -> tuple[FrozenForward, ...] | None:
        """Returns the models whose samples came again with the same results; None if that is not known of each.

        Numbers on a device are read only by the thread of the run, after the run, when no tap records that thread.
        """
        over = self._recorder.retired and get_ident() == self._thread
        models = list(self._models.values())
        for model in models:
            if over and model.stored:
                model.read()
        unseen = any(model.unseen or model.stored for model in models)
        found = None if unseen else tuple(fact for model in models if (fact := model.found()) is not None)
        if over:
            self._recorder.facts["frozen"] = found
        return found

    def end(self) -> None:
        """Stops listening to forwards and steps."""
        self._scope.forwarded.leave(self.called)
        self._scope.stepped.leave(self.stepped)


def _read(inputs: list[torch.Tensor], result: torch.Tensor) -> tuple[Rows, torch.Tensor] | None:
    """Returns some numbers of each row of the inputs and of the result; None if rows cannot be distinguished by them.

    Inputs without a row for each sample (a mask over positions) are left out: if they change, so do the results.
    """
    if result.is_cuda and torch.cuda.is_current_stream_capturing():  # our copies would go into the user's graph
        return None
    count, result_rows = result.shape[0], rows_of(result, OUTPUTS)
    batched = [x for x in inputs if not x.is_nested and x.dim() and x.shape[0] == count][:MOST_INPUTS]
    rows = [rows_of(x, NUMBERS) for x in batched]
    known = [numbers for numbers in rows if numbers is not None]
    return None if result_rows is None or not known or len(known) < len(batched) else (known, result_rows)


def tap(scope: TapScope) -> None:
    """Adds the fact `frozen` to the setup."""
    frozen = Frozen(scope)
    scope.optimized.append(frozen.optimized)
    scope.recorder.facts["frozen"] = frozen.facts
    scope.at_end(frozen.end)

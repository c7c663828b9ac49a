"""A loop that is told to a recorder, event by event, as its taps would; and what the recorder makes of it by now."""

from __future__ import annotations

from gpu_doctor.capture.events import (
    BACKED,
    BATCH,
    CALLED,
    CPU,
    CPU_EVERY_NS,
    EXHAUSTED,
    GRADIENT,
    NEXT,
    NEXT_BLIND,
    RESTART,
    STEP,
    STEPPED,
    call_code,
)
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Source, Span
from gpu_doctor.recording.steps import EVALUATION


class ToldLoop:
    """Notes what a loop does on its recorder's log, which is folded when it is due."""

    def __init__(self, recorder: Recorder, source: Source | None = None) -> None:
        """Args: recorder: of the run. source: of the batches."""
        self.recorder, self.log = recorder, recorder.log
        self.source = Source() if source is None else source

    def _begins(self, code: int, arg: object = None) -> None:
        now = self.log.clock()
        self.log.note((code, now, arg))
        if now >= self.log.due_ns or len(self.log.events) >= self.log.due:
            self.recorder.fold(now)

    def _ends(self, code: int, arg: object = None) -> None:
        self.log.note((code, self.log.clock(), arg))

    def asks(self, grad: bool = True) -> None:
        """It asks for a batch."""
        now = self.log.clock()
        if now >= self.log.cpu_due_ns:
            self.log.cpu_due_ns = now + CPU_EVERY_NS
            self.log.note((CPU, now, self.log.cpu_clock()))
        self.log.steps += 1
        self._begins(NEXT if grad else NEXT_BLIND, self.source)

    def got(self, samples: float = 8.0) -> None:
        """The batch is there."""
        self.log.pulled = True
        self._ends(BATCH, samples)

    def ran_out(self) -> None:
        """There is no further batch."""
        self._ends(EXHAUSTED)

    def pulls(self, samples: float = 8.0, grad: bool = True) -> None:
        """A batch for which it does not wait."""
        self.asks(grad)
        self.got(samples)

    def calls(self, training: bool = True, grad: bool = True, trained: bool = True, samples: float = 8.0) -> None:
        """A forward begins."""
        self._begins(call_code(training, grad, trained), (samples, 1))

    def called(self) -> None:
        """It has ended."""
        self._ends(CALLED)

    def differentiates(self, loss: object = None) -> None:
        """A backward begins."""
        if loss is not None and self.log.steps >= self.log.loss_at:
            self.recorder.loss_kept()
        else:
            loss = None
        if not self.log.pulled:
            self.log.steps += 1
        self._begins(GRADIENT, loss)

    def backed(self) -> None:
        """It has ended."""
        self._ends(BACKED)

    def steps(self, optimizer: int = 1) -> None:
        """An optimizer's step begins."""
        self.log.trains = True
        self._begins(STEP, optimizer)

    def stepped(self, optimizer: int = 1) -> None:
        """It has ended."""
        self._ends(STEPPED, optimizer)
        self.log.pulled = False

    def learns(self, optimizer: int = 1, loss: object = None) -> None:
        """A backward and an optimizer's step that take no time."""
        self.differentiates(loss)
        self.backed()
        self.steps(optimizer)
        self.stepped(optimizer)


def begun(recorder: Recorder) -> Recorder:
    """The recorder, whose loop has begun."""
    recorder.log.note((RESTART, recorder.clock(), None))
    recorder.fold()
    return recorder


def phase_now(recorder: Recorder) -> int:
    """What the training thread, which calls this, is in."""
    recorder.fold()
    clock = recorder.step_clock
    return EVALUATION if clock._span.evaluation else clock._phases[-1]


def open_spans(recorder: Recorder) -> list[Span]:
    """The spans of the step that is open, those of an evaluation among them; called on the training thread."""
    recorder.fold()
    return list(recorder.step_clock._spans)


def billed_ns(recorder: Recorder, phase: int) -> int:
    """What the open step has in a phase so far; called on the training thread."""
    spans = open_spans(recorder)
    if phase == EVALUATION:
        return sum(sum(one.ns) for one in spans if one.evaluation)
    return sum(one.ns[phase] for one in spans if not one.evaluation)

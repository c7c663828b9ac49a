"""State of a recorder in the middle of a loop that `simulated_device.Noted` notes in it."""

from __future__ import annotations

from gpu_doctor.capture.events import RESTART
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import EVALUATION


def begun(recorder: Recorder) -> Recorder:
    """Returns the recorder, whose loop has begun."""
    recorder.log.note((RESTART, recorder.clock(), None))
    recorder.fold()
    return recorder


def phase_now(recorder: Recorder) -> int:
    """Returns the phase of the training thread, which calls this."""
    recorder.fold()
    clock = recorder.step_clock
    return EVALUATION if clock.open.span.evaluation else clock._phases[-1]


def open_spans(recorder: Recorder) -> list[Span]:
    """Returns the spans of the open step, with those of an evaluation; called on the training thread."""
    recorder.fold()
    return list(recorder.step_clock.open.spans)


def billed_ns(recorder: Recorder, phase: int) -> int:
    """Returns the time of a phase in the open step so far; called on the training thread."""
    spans = open_spans(recorder)
    if phase == EVALUATION:
        return sum(sum(one.ns) for one in spans if one.evaluation)
    return sum(one.ns[phase] for one in spans if not one.evaluation)

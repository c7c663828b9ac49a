"""The marks of the device that ride on the events of a loop: which of them are a step's.

The step clock says which spans a step consists of; here its marks are put together, for `gpu/marks.py` to read. What
was launched after an optimizer's step, before the ask that ended it, is the next step's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_doctor.capture import events
from gpu_doctor.capture.gpu.marks import Marked, StepMarks
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import DATA_WAIT, TRANSFER


class DeviceMarks:
    """All marks of a run, while they are of no step yet."""

    def __init__(self) -> None:
        self.events = 0
        """Of the log, those that stand for marks, whose cost the device's clock counts itself."""
        self.spent: list[Any] = []
        """Marks that nobody will read."""
        self.clear()

    def clear(self) -> None:
        """The loop begins, or begins anew: nothing is known of it."""
        self._carried: list[Marked] = []
        """Of work that was launched after the last optimizer's step."""
        self._newest: Span | None = None
        """Has the newest mark of an evaluation."""
        self.empty: bool | None = None
        """Whether the device's queue had run empty, as was asked when the step ended."""

    def put(self, span: Span, code: int, mark: Any, before: Sequence[Span]) -> None:
        """A mark was put for an event of this code.

        Args:
            span: the open one.
            code: of the event.
            mark: None where none could be put.
            before: the spans of the step so far, of whose waits a forward's gap is made.
        """
        self.events += 1
        waited = copied = 0
        if span.evaluation:
            self._keep_newest(span)
        elif code == events.CALL:
            for one in before:
                if not one.evaluation:
                    waited += one.ns[DATA_WAIT]
                    copied += one.ns[TRANSFER]
        if span.marks is None:
            span.marks = []
        span.marks.append(Marked(code, mark, waited, copied))

    def _keep_newest(self, span: Span) -> None:
        """Of an evaluation only its last mark is read: those before it are given back."""
        last, self._newest = self._newest, span
        if last is not None and last.evaluation and last.marks:
            self.spent += [one.mark for one in last.marks]
            last.marks = None

    def joined(self, last: Span, before: Span) -> None:
        """A span of an evaluation has become a part of the one before."""
        before.marks = [*(before.marks or ()), *(last.marks or ())] or None
        self._newest = before if self._newest is last else self._newest

    def asked(self, empty: bool) -> None:
        """A step is about to end: whether the queue had run empty."""
        self.events += 1
        self.empty = empty

    def of_step(self, spans: Sequence[Span], own: bool, readable: bool) -> StepMarks | None:
        """The marks of a step that has ended; None where it has none. `own` and `readable`: see `StepMarks`."""
        marks, self._newest = self._carried, None
        for span in spans:
            marks += [one._replace(evaluation=span.evaluation) for one in span.marks or ()]
        last = max((i for i, one in enumerate(marks, 1) if one.code == events.STEPPED), default=len(marks))
        self._carried, empty, self.empty = marks[last:], self.empty, None
        return StepMarks(marks[:last], own, readable, empty) if marks else None

"""The device's marks for the events of a loop, sorted into steps.

The step clock knows which spans form a step; this module collects their marks, for `gpu/marks.py` to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.gpu.marks import Marked
from gpu_doctor.capture.spans import Span

MOST_MARKS: Final = 1024
"""Most marks of a step; a step with more is not read."""


class DeviceMarks:
    """The marks that belong to no finished step yet."""

    def __init__(self) -> None:
        self.events = 0
        """Number of MARK events in the log so far; the device's clock counts their cost itself."""
        self.spent: list[Any] = []
        """Marks that will not be read, to be freed."""
        self.clear()

    def clear(self) -> None:
        """Forgets everything, as the loop starts or starts over."""
        self._newest: Span | None = None
        """The span with the newest mark of the running evaluation."""
        self._count = 0
        """Number of marks since a step ended."""
        self._whole = True
        """True if no mark of the step is missing."""

    def put(self, span: Span, code: int, put: Put, own_ns: int) -> None:
        """Adds a mark that was put for an event.

        Args:
            span: the open span.
            code: the event's code.
            put: the mark.
            own_ns: time that gpu_doctor has taken on the training thread by then, in ns.
        """
        self.events += 1
        if span.evaluation:
            self._keep_newest(span)
        else:
            self._newest = None  # a later evaluation is another one: the last mark of this one stays
            self._count += 1
        if self._count > MOST_MARKS:
            self._whole = False
            self.spent.append(put.mark)
            return
        if span.marks is None:
            span.marks = []
        span.marks.append(Marked(code, put, own_ns))

    def stopped(self) -> None:
        """Makes the open step unreadable: marking stops in the middle of it."""
        self._whole = False

    def lost(self, marks: Iterable[Marked]) -> None:
        """Gives marks of the open step up, which makes the step unreadable."""
        self.spent += [mark.put.mark for mark in marks]
        self._whole = False

    def _keep_newest(self, span: Span) -> None:
        """Frees the earlier marks of an evaluation, of which only the last mark is read."""
        last, self._newest = self._newest, span
        if last is not None and last.evaluation and last.marks:
            self.spent += [mark.put.mark for mark in last.marks]
            last.marks = None

    def joined(self, last: Span, before: Span) -> None:
        """Moves the marks of an evaluation's span to the span before, into which it was merged."""
        before.marks = [*(before.marks or ()), *(last.marks or ())] or None
        self._newest = before if self._newest is last else self._newest

    def take_step(self, spans: Sequence[Span]) -> list[Marked] | None:
        """Returns the marks of a finished step, in order, and starts the next step.

        None if it has none, or if some are missing: those it has go to `spent`.
        """
        whole, self._newest, self._count, self._whole = self._whole, None, 0, True
        marks = [mark._replace(evaluation=span.evaluation) for span in spans for mark in span.marks or ()]
        if whole and marks:
            return marks
        self.spent += [mark.put.mark for mark in marks]
        return None

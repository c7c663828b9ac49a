"""The marks of the device that ride on the events of a loop: which of them are a step's.

The step clock says which spans a step consists of; here its marks are put together, for `gpu/marks.py` to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.gpu.marks import Marked
from gpu_doctor.capture.spans import Span

MOST_MARKS: Final = 1024
"""Of a step; one with more is not read."""


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
        self._newest: Span | None = None
        """Has the newest mark of the evaluation that runs."""
        self._count = 0
        """Marks since a step ended."""
        self._whole = True
        """All of them are there."""

    def put(self, span: Span, code: int, put: Put, own_ns: int) -> None:
        """A mark was put for an event.

        Args:
            span: the open one.
            code: of the event.
            put: the mark.
            own_ns: what gpu_doctor has taken of the training thread by then.
        """
        self.events += 1
        if span.evaluation:
            self._keep_newest(span)
        else:
            self._newest = None  # what comes later is another evaluation: the last mark of this one stays
            self._count += 1
        if self._count > MOST_MARKS:
            self._whole = False
            self.spent.append(put.mark)
            return
        if span.marks is None:
            span.marks = []
        span.marks.append(Marked(code, put, own_ns))

    def stopped(self) -> None:
        """No marks are put from here on, in the middle of a step: it cannot be read."""
        self._whole = False

    def lost(self, marks: Iterable[Marked]) -> None:
        """These marks of the open step will not be read, so it cannot be."""
        self.spent += [one.put.mark for one in marks]
        self._whole = False

    def _keep_newest(self, span: Span) -> None:
        """Of an evaluation only its last mark is read: those before it are given back."""
        last, self._newest = self._newest, span
        if last is not None and last.evaluation and last.marks:
            self.spent += [one.put.mark for one in last.marks]
            last.marks = None

    def joined(self, last: Span, before: Span) -> None:
        """A span of an evaluation has become a part of the one before."""
        before.marks = [*(before.marks or ()), *(last.marks or ())] or None
        self._newest = before if self._newest is last else self._newest

    def of_step(self, spans: Sequence[Span]) -> list[Marked] | None:
        """The marks of a step that has ended, in their order; None where it has none, or not all."""
        whole, self._newest, self._count, self._whole = self._whole, None, 0, True
        marks = [one._replace(evaluation=span.evaluation) for span in spans for one in span.marks or ()]
        if whole and marks:
            return marks
        self.spent += [one.put.mark for one in marks]
        return None

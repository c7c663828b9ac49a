"""The step that is open: its spans in their order, and the places between them at which it may turn out to end."""

from __future__ import annotations

from operator import add
from typing import Final

from gpu_doctor.capture.device_marks import DeviceMarks
from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span, summed, together

MOST_SPANS: Final = 2048
"""Of an open step; in one that never ends the older ones are put together."""


class OpenStep:
    """The spans since the last step ended. A place between two of them is the number of spans before it."""

    def __init__(self, begin: int) -> None:
        """`begin`: ns of the host clock."""
        self.clear(begin)

    def clear(self, begin: int) -> None:
        """The loop begins, or begins anew."""
        self.span = Span(begin)
        """The newest one, which grows."""
        self.spans = [self.span]
        self.at_ask = 0
        """The place of the last ask; where batches are fetched ahead, of the first ask whose batch was not used yet."""
        self.manual_end = 0
        """The place after the last backward of a loop that changes its parameters itself; 0 = there is none."""
        self.unused: int | None = None
        """The place after which a trained module was called in evaluation mode, recording gradients, after the step."""
        self.epoch = -1
        """The number of the pass over the training data."""
        self.reset()

    def reset(self) -> None:
        """A step begins: of what it consists of, only the spans that are left are known."""
        self.stepped: list[int] = []
        """The optimizers that have stepped."""
        self.end_ns, self.end = 0, 0
        """When the last of them had stepped, and the place."""
        self.asked = False
        """A training loader was asked for a batch."""
        self.lead: Source | None = None
        """The iterator whose samples count: where several are pulled from in a step, the one that delivers most."""
        self.fed_span: Span | None = None
        """Has the samples of the forwards that are learned from."""

    def cut(self, now: int, evaluation: bool) -> None:
        """Another span begins."""
        self.span = Span(now, evaluation)
        self.spans.append(self.span)

    def batches(self) -> int:
        """How many the step has, as far as is known."""
        return sum(span.batches for span in self.spans if not span.evaluation)

    def count(self, source: Source, samples: float) -> None:
        """A batch is the step's. Of several loaders only one gives samples: the one that gave most."""
        lead = self.lead
        source.loader.delivered += 1
        if lead is None or (source is not lead and source.loader.delivered > lead.loader.delivered):
            self.lead = source
            for span in self.spans:
                span.samples = 0.0
        elif source.delivered == 1 < lead.delivered and source.loader is lead.loader:
            self.lead = source  # the next pass goes on with the step that the last one began
        if source is self.lead:
            self.span.samples += samples
            self.epoch += source.delivered == 1
        self.span.batches += 1

    def uncount(self, source: Source) -> None:
        """A batch of this iterator, untouched and the only one, is no part of the step."""
        if self.lead is source and source.delivered > 1:
            spans = [span for span in self.spans if span.batches and not span.evaluation]
            if sum(span.batches for span in spans) == 1:
                self.lead = None
                for span in spans:
                    span.batches, span.samples = 0, 0.0

    def was_evaluation(self, source: Source, ahead: int) -> int:
        """All since the last ask is an evaluation's: its batch and samples are none of the step's.

        Args:
            source: whose batch it is.
            ahead: batches that were fetched ahead besides it.

        Returns:
            ns at the edges of the pass, which were the step's so far.
        """
        batches = edge_ns = 0
        for span in self.spans[self.at_ask :]:
            if not span.evaluation:
                batches += span.batches
                edge_ns += span.edge_ns
                span.evaluation = True
        source.loader.delivered -= batches
        if self.lead is source and not self.batches():
            self.lead = None
            self.epoch -= source.delivered == ahead + 1
        return edge_ns

    def take(self, count: int) -> list[Span]:
        """Takes the first spans off, as a step that has ended; with those that are left the next one begins."""
        spans, self.spans = self.spans[:count], self.spans[count:]
        self.reset()
        self.at_ask, self.manual_end = max(self.at_ask - count, 0), 0
        if self.unused is not None:
            self.unused -= count
        return spans

    def precede(self, spans: list[Span]) -> None:
        """These spans, which come before all others, are the step's as well."""
        self.spans[:0] = spans
        self.at_ask += len(spans)

    def put_together(self, device: DeviceMarks) -> None:
        """A step that does not end: its older spans become one of its own and one of evaluations."""
        count = min(self.at_ask, self.manual_end or self.at_ask, len(self.spans) - 2)
        old, self.spans = self.spans[:count], self.spans[count:]
        kinds = [[one for one in old if one.evaluation == evaluation] for evaluation in (True, False)]
        merged = [together(ones) for ones in kinds if ones]
        if self.fed_span in old:
            self.fed_span = merged[-1]
        device.lost(mark for one in old for mark in one.marks or ())
        self.spans[:0] = merged
        self.at_ask -= count - len(merged)
        self.manual_end -= (count - len(merged)) if self.manual_end else 0

    def gather_evaluation(self, device: DeviceMarks) -> None:
        """A span of an evaluation has ended: it joins the one before, so that a long pass is no long list."""
        spans = self.spans
        if len(spans) < 2 or not (spans[-1].evaluation and spans[-2].evaluation):
            return
        if len(spans) - 1 <= max(self.end, self.manual_end, -1 if self.unused is None else self.unused):
            return
        last = spans.pop()
        before = self.span = spans[-1]
        before.ns = list(map(add, before.ns, last.ns))
        device.joined(last, before)
        if last.calls is not None:
            before.calls = summed(before.calls or {}, last.calls)
        self.at_ask = min(self.at_ask, len(spans))

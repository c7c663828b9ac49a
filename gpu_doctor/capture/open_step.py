"""The step that has not ended yet: its spans in order, and the places between them at which it may turn out to end."""

from __future__ import annotations

from operator import add
from typing import Final

from gpu_doctor.capture.device_marks import DeviceMarks
from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span, summed, together

MOST_SPANS: Final = 2048
"""Most spans that an open step stores one by one; in a step that never ends, older spans are merged."""


class OpenStep:
    """The spans since the last step ended. A place between two spans is given as the number of spans before it."""

    def __init__(self, begin: int) -> None:
        """Starts with one empty span at `begin`, in ns of the host clock."""
        self.clear(begin)

    def clear(self, begin: int) -> None:
        """Forgets everything, as the loop starts or starts over at `begin` (ns)."""
        self.span = Span(begin)
        """The newest span; time and counts go to it."""
        self.spans = [self.span]
        self.at_request = 0
        """Place of the last request; if batches are fetched ahead, of the first whose batch was not used yet."""
        self.manual_end = 0
        """Place after the last backward of a loop that updates its parameters by hand; 0 if there is none."""
        self.unused: int | None = None
        """Place, after the optimizer's step, where a trained module ran in evaluation mode and recorded gradients."""
        self.epoch = -1
        """Number of the pass over the training data, from 0; -1 before the first."""
        self.reset()

    def reset(self) -> None:
        """Forgets the facts of the last step, as a new step begins; the spans stay."""
        self.stepped: list[int] = []
        """Ids of the optimizers that have stepped in this step."""
        self.end_ns, self.end = 0, 0
        """Time in ns, and place, at which the last optimizer's step ended."""
        self.requested = False
        """True if a batch of a training loader was requested."""
        self.lead: Source | None = None
        """The iterator whose samples count: of several in one step, the one whose loader delivered most batches."""
        self.forward_span: Span | None = None
        """The span that counts the input samples of the training forwards."""

    def cut(self, now: int, evaluation: bool) -> None:
        """Starts another span at `now` (ns); `evaluation`: it belongs to an evaluation."""
        self.span = Span(now, evaluation)
        self.spans.append(self.span)

    def batches(self) -> int:
        """Returns the number of batches that the step has so far, without those of evaluations."""
        return sum(span.batches for span in self.spans if not span.evaluation)

    def count(self, source: Source, samples: float) -> None:
        """Counts a batch in the step. If several loaders deliver, only the samples of `lead` are counted."""
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
        """Takes the step's only batch out again: the iterator delivered it, and the loop did not use it.

        A pass with a single batch is left alone: it may be one of two iterators over a loader (`zip(loader, loader)`).
        """
        if self.lead is source and source.delivered > 1:
            spans = [span for span in self.spans if span.batches and not span.evaluation]
            if sum(span.batches for span in spans) == 1:
                self.lead = None
                for span in spans:
                    span.batches, span.samples = 0, 0.0

    def was_evaluation(self, source: Source, ahead: int) -> int:
        """Makes all spans since the last request an evaluation's, so that their batch does not count in the step.

        Args:
            source: the batch's iterator.
            ahead: number of batches that were fetched ahead besides this one.

        Returns:
            Data wait at the start and end of the pass, in ns, which the step had counted so far.
        """
        batches = edge_ns = 0
        for span in self.spans[self.at_request :]:
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
        """Removes and returns the first `count` spans, as a finished step; the next step begins with the others."""
        spans, self.spans = self.spans[:count], self.spans[count:]
        self.reset()
        self.at_request, self.manual_end = max(self.at_request - count, 0), 0
        if self.unused is not None:
            self.unused -= count
        return spans

    def precede(self, spans: list[Span]) -> None:
        """Puts earlier spans at the start of the step."""
        self.spans[:0] = spans
        self.at_request += len(spans)

    def put_together(self, device: DeviceMarks) -> None:
        """Merges the older spans of a step that does not end: one span for the step, one for its evaluations."""
        count = min(self.at_request, self.manual_end or self.at_request, len(self.spans) - 2)
        old, self.spans = self.spans[:count], self.spans[count:]
        kinds = [[span for span in old if span.evaluation == evaluation] for evaluation in (True, False)]
        merged = [together(group) for group in kinds if group]
        if self.forward_span in old:
            self.forward_span = merged[-1]
        device.lost(mark for span in old for mark in span.marks or ())
        self.spans[:0] = merged
        self.at_request -= count - len(merged)
        self.manual_end -= (count - len(merged)) if self.manual_end else 0

    def gather_evaluation(self, device: DeviceMarks) -> None:
        """Merges the newest span into the one before if both are an evaluation's: a long pass stays a short list."""
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
        self.at_request = min(self.at_request, len(spans))

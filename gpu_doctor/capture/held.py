"""Batches kept back until it is known whether they are steps of their own or the begin of a first, long step.

A loop that accumulates gradients, sums losses or fetches ahead pulls several batches before its first optimizer step; a
loop without an optimizer looks the same until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import TRAINING

MOST_HELD: Final = 64
"""Batches kept back at the begin of a run: they are one accumulated step if an optimizer steps within so many."""
HELD_NS: Final = 3_000_000_000


@dataclass
class Batch:
    """What a batch was used for, from the ask for it to the next one."""

    spans: list[Span]
    end_ns: int
    kind: float
    """TRAINING if something was learned from it, else INFERENCE."""
    asked: bool
    epoch: int
    source: Source | None
    """Whose batch it is."""
    evaluation_only: bool
    """Only evaluation or no-grad forwards ran."""
    blind: bool
    """It was asked for while no gradients were recorded, and no forward that may learn ran."""
    trains: bool
    """A forward in training mode that records gradients, or a backward, ran."""
    cpu: int | None
    """CPU ns of the process at its end."""


class Held:
    """The batches so far."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def hold(self, batch: Batch) -> bool:
        """Keeps one back; returns whether there are too many now."""
        self.batches.append(batch)
        return len(self.batches) > MOST_HELD or batch.end_ns - self.batches[0].spans[0].begin > HELD_NS

    def own_pass(self) -> bool:
        """At a loader's end: nothing like training was heard, so this was a pass over the data of its own."""
        return bool(self.batches) and not any(one.trains for one in self.batches)

    @property
    def taught(self) -> bool:
        """Something was learned from one of them."""
        return any(one.kind == TRAINING for one in self.batches)

    def _evaluates(self, batch: Batch) -> bool:
        """Whether a batch is an evaluation's: nothing was learned from it, and something was from others."""
        source = batch.source
        if not self.taught or (source is not None and source.learned):
            return False
        return batch.evaluation_only or (batch.blind and source is not None)

    def evaluated(self) -> list[Source]:
        """The iterators of the batches that are an evaluation's."""
        return [one.source for one in self.batches if one.source is not None and self._evaluates(one)]

    def released(self) -> tuple[list[Batch], list[Span], int]:
        """The batches as steps of their own; the spans of an evaluation that no step follows; how many passes it had.

        Where something is learned from others, those of which nothing was are an evaluation: a part of the next step.
        """
        steps: list[Batch] = []
        left: list[Span] = []
        passes = set[int]()
        for one in self.batches:
            evaluates = self._evaluates(one)
            if evaluates:
                for span in one.spans:
                    span.evaluation = True
                if one.source is not None:
                    one.source.loader.delivered -= 1
                    passes.add(one.source.number)
            one.epoch -= len(passes)
            left += one.spans
            if not evaluates:
                one.spans, left = left, []
                steps.append(one)
        return steps, left, len(passes)

    def merged(self, trained: Source | None) -> list[Span]:
        """The spans of all of them, as the begin of the first step.

        What was asked for without gradients is an evaluation, unless it is from the iterator that is `trained` from.
        """
        spans: list[Span] = []
        for one in self.batches:
            evaluation = one.evaluation_only or (one.blind and one.source is not None and one.source is not trained)
            for span in one.spans:
                span.evaluation = span.evaluation or evaluation
            spans += one.spans
        return spans

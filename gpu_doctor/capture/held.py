"""Batches held back until it is known whether they are steps of their own or the start of a first, long step.

A loop that accumulates gradients, sums losses or fetches ahead requests several batches before its first optimizer
step; a loop without an optimizer looks the same until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.capture.sources import Source
from gpu_doctor.capture.spans import Span
from gpu_doctor.recording.steps import TRAINING

MOST_HELD: Final = 64
"""Most batches held back at the start of a run; if an optimizer steps within them, they are one accumulated step."""
HELD_NS: Final = 3_000_000_000
"""Longest time that batches are held back, in ns."""


@dataclass
class Batch:
    """A batch and what the loop used it for, from its request to the next one."""

    spans: list[Span]
    end_ns: int
    kind: float
    """TRAINING if a backward or an optimizer's step followed, else INFERENCE."""
    requested: bool
    epoch: int
    source: Source | None
    """The iterator that delivered the batch."""
    evaluation_only: bool
    """True if all forwards ran in evaluation mode or without gradients."""
    blind: bool
    """True if no gradients were recorded at the request, and no training forward ran."""
    trains: bool
    """True if a forward in training mode that records gradients, or a backward, ran."""
    cpu: int | None
    """CPU time of the process at the batch's end, in ns; None if it was not read."""


class Held:
    """The batches that are held back."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    def hold(self, batch: Batch) -> bool:
        """Holds a batch back; returns True if there are now too many, or the first is too old."""
        self.batches.append(batch)
        return len(self.batches) > MOST_HELD or batch.end_ns - self.batches[0].spans[0].begin > HELD_NS

    def own_pass(self) -> bool:
        """True if the batches were a pass without training. Called at a loader's end."""
        return bool(self.batches) and not any(batch.trains for batch in self.batches)

    @property
    def trained_on(self) -> bool:
        """True if the loop trained on one of the batches."""
        return any(batch.kind == TRAINING for batch in self.batches)

    def _evaluates(self, batch: Batch) -> bool:
        """True if a batch belongs to an evaluation: the loop trained on others, and not on this one."""
        source = batch.source
        if not self.trained_on or (source is not None and source.learned):
            return False
        return batch.evaluation_only or (batch.blind and source is not None)

    def evaluated(self) -> list[Source]:
        """Returns the iterators of the batches that belong to an evaluation."""
        return [batch.source for batch in self.batches if batch.source is not None and self._evaluates(batch)]

    def released(self) -> tuple[list[Batch], list[Span], int]:
        """Turns the batches into steps; if the loop trained on some, the others are an evaluation in the next step.

        Returns:
            The batches that are steps, the spans of an evaluation that no step follows, and the number of evaluation
            passes.
        """
        steps: list[Batch] = []
        pending: list[Span] = []
        passes = set[int]()
        for batch in self.batches:
            evaluates = self._evaluates(batch)
            if evaluates:
                for span in batch.spans:
                    span.evaluation = True
                if batch.source is not None:
                    batch.source.loader.delivered -= 1
                    passes.add(batch.source.number)
            batch.epoch -= len(passes)
            pending += batch.spans
            if not evaluates:
                batch.spans, pending = pending, []
                steps.append(batch)
        return steps, pending, len(passes)

    def merged(self, trained: Source | None) -> list[Span]:
        """Returns the spans of all batches, as the start of the first step.

        A batch requested without gradients belongs to an evaluation, unless it is from the iterator `trained`, which
        the loop trains on.
        """
        spans: list[Span] = []
        for batch in self.batches:
            evaluation = batch.evaluation_only or (
                batch.blind and batch.source is not None and batch.source is not trained
            )
            for span in batch.spans:
                span.evaluation = span.evaluation or evaluation
            spans += batch.spans
        return spans

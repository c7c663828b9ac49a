"""Batches kept back until it is known whether they are steps of their own or the begin of a first, long step.

A loop that accumulates gradients, sums losses or fetches ahead pulls several batches before its first optimizer step; a
loop without an optimizer looks the same until then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.capture.spans import Source, Span
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
    looked: bool
    """Only forwards without learning were heard."""
    blind: bool
    """It was asked for without gradients, and nothing else is known of it."""
    trains: bool
    """A forward that records gradients, or a backward, was heard."""
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

    def judged(self) -> list[bool]:
        """Of each, whether it is an evaluation's: nothing was learned from it, and something was from others."""
        found = []
        for one in self.batches:
            learned = one.source is not None and one.source.learned
            found.append(self.taught and (one.looked or (one.blind and one.source is not None)) and not learned)
            if found[-1] and one.source is not None:
                one.source.evaluation = True
        return found

    def released(self) -> tuple[list[Batch], list[Span], int]:
        """The batches as steps of their own; the spans of an evaluation that no step follows; how many passes it had.

        Where something is learned from others, those of which nothing was are an evaluation: a part of the next step.
        """
        steps: list[Batch] = []
        left: list[Span] = []
        passes = set[int]()
        for one, looked in zip(self.batches, self.judged(), strict=True):
            if looked:
                for span in one.spans:
                    span.evaluation = True
                if one.source is not None:
                    one.source.loader[0] -= 1
                    passes.add(id(one.source))
            one.epoch -= len(passes)
            left += one.spans
            if not looked:
                one.spans, left = left, []
                steps.append(one)
        return steps, left, len(passes)

    def merged(self, trained: Source | None) -> list[Span]:
        """The spans of all of them, as the begin of the first step.

        What was asked for without gradients is an evaluation, unless it is from the iterator that is `trained` from.
        """
        spans: list[Span] = []
        for one in self.batches:
            evaluation = one.looked or (one.blind and one.source is not None and one.source is not trained)
            for span in one.spans:
                span.evaluation = span.evaluation or evaluation
            spans += one.spans
        return spans

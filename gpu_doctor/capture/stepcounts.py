"""What is counted in a step besides time, and how a row of the step table is made of a stretch of the loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_doctor.recording.steps import EVALUATION, TRAINING

_NAN: Final = float("nan")
_UNREAD: Final = (_NAN,) * 8
"""The device's columns of a step that ends: `StepTable.add_device` fills them later."""
MOST_HELD: Final = 64
"""Batches kept back at the begin of a run: they are one accumulated step if an optimizer steps within so many."""
HELD_NS: Final = 3_000_000_000


class Pull:
    """One iterator over a loader, as the ledger knows it."""

    __slots__ = ("delivered", "evaluation", "iterator", "learned", "loader")

    def __init__(self, loader: list[int] | None = None, learned: bool = False) -> None:
        """`loader`: one cell that all iterators over it share, the batches that it has delivered to training."""
        self.delivered = 0
        self.evaluation = False
        self.iterator = 0
        """Its id."""
        self.loader = [0] if loader is None else loader
        self.learned = learned
        """A backward or an optimizer step followed one of the loader's batches: the loop trains from it."""


class Counts:
    """Counts of a step, or of the part of it since an optimizer last stepped."""

    __slots__ = ("batches", "edge_ns", "forward_samples", "pageable", "samples", "syncs", "transfer_bytes", "transfers")

    def __init__(self) -> None:
        self.samples = 0.0
        self.forward_samples = _NAN
        """Batch dimension of the first trained forward: the step's samples where nothing was pulled."""
        self.batches = self.edge_ns = 0
        self.transfers = self.transfer_bytes = self.pageable = self.syncs = 0

    def add(self, later: Counts) -> None:
        """Takes in what came later in the same step."""
        self.samples += later.samples
        if self.forward_samples != self.forward_samples:
            self.forward_samples = later.forward_samples
        self.batches += later.batches
        self.edge_ns += later.edge_ns
        self.transfers += later.transfers
        self.transfer_bytes += later.transfer_bytes
        self.pageable += later.pageable
        self.syncs += later.syncs


@dataclass
class Stretch:
    """A part of the loop that becomes a row: a step, or a batch of a loop without an optimizer. Times in ns."""

    __slots__ = ("acc", "asked", "begin", "counts", "cpu_begin", "cpu_end", "end", "epoch", "kind")

    begin: int
    end: int
    acc: list[int]
    counts: Counts
    kind: float
    asked: bool
    """A training loader was asked for a batch: no batch then means none, not "no loader"."""
    cpu_begin: int
    cpu_end: int
    epoch: int

    def row(self, began: int, sync: bool) -> list[float]:
        """The values in the order of `steps.STEP_COLUMNS`.

        Args:
            began: when the run began. sync: whether waits for a device were measured (NaN if not).
        """
        start, wall, cpu = self.begin - began, self.end - self.begin, self.cpu_end - self.cpu_begin
        return row(start, wall, self.acc, self.counts, self.kind, self.asked, cpu, self.epoch, sync)


def row(
    start: int, wall: int, acc: list[int], counts: Counts, kind: float, asked: bool, cpu: int, epoch: int, sync: bool
) -> list[float]:
    """The values of one row, in the order of `steps.STEP_COLUMNS`; written out, because every step pays for it.

    Args:
        start, wall, cpu: ns; `start` since the run began. sync: whether waits for a device were measured (NaN if not).
        acc, counts, kind, asked, epoch: see `Stretch`.
    """
    wait, transfer, forward, backward, optimizer, synced, evaluation, loss, no_grad, _ = acc
    return [
        start * 1e-9,
        wall * 1e-9,
        1.0,
        kind,
        counts.samples if counts.batches or asked else counts.forward_samples,
        counts.batches,
        wait * 1e-9,
        transfer * 1e-9,
        (forward + no_grad) * 1e-9,
        backward * 1e-9,
        optimizer * 1e-9,
        synced * 1e-9 if sync else _NAN,
        evaluation * 1e-9,
        loss * 1e-9,
        no_grad * 1e-9,
        counts.edge_ns * 1e-9,
        cpu * 1e-9,
        counts.transfers,
        counts.transfer_bytes,
        counts.pageable,
        counts.syncs if sync else _NAN,
        *_UNREAD,
        0.0,
        epoch if epoch > 0 else 0,
    ]


class Held:
    """Batches kept back until it is known whether they are steps of their own or the begin of a first, long step.

    A loop that accumulates gradients, sums losses or fetches ahead pulls several batches before its first optimizer
    step; a loop without an optimizer looks the same until then.
    """

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self.evaluated: list[bool] = []
        self.blind: list[Pull | None] = []
        self.pulls: list[Pull | None] = []
        self._trains = False

    def hold(
        self, stretch: Stretch, evaluated: bool, trains: bool, pull: Pull | None = None, blind: bool = False
    ) -> bool:
        """Keeps one back; returns whether there are too many now.

        Args:
            evaluated: only forwards without learning were heard. trains: a forward that records gradients, or a
                backward, was heard.
            pull: whose batch it is. blind: it was asked for without gradients, and nothing else is known of it.
        """
        self.stretches.append(stretch)
        self.evaluated.append(evaluated)
        self.blind.append(pull if blind else None)
        self.pulls.append(pull)
        self._trains = self._trains or trains
        return len(self.stretches) > MOST_HELD or stretch.end - self.stretches[0].begin > HELD_NS

    def own_pass(self) -> bool:
        """At a loader's end: nothing like training was heard, so this was a pass over the data of its own."""
        return bool(self.stretches) and not self._trains

    @property
    def taught(self) -> bool:
        """Something was learned from one of them."""
        return any(one.kind == TRAINING for one in self.stretches)

    def judged(self) -> list[bool]:
        """Of each, whether it is an evaluation's: nothing was learned from it, and something was from others."""
        found = []
        for evaluated, blind, pull in zip(self.evaluated, self.blind, self.pulls, strict=True):
            found.append(self.taught and (evaluated or blind is not None) and not (pull is not None and pull.learned))
            if found[-1] and pull is not None:
                pull.evaluation = True
        return found

    def rows(self) -> tuple[list[Stretch], Stretch | None, int]:
        """The batches as steps of their own; the last evaluation's stretch where no step follows it; how many passes.

        Where something is learned from others, those of which nothing was are an evaluation: a part of the next step.
        """
        rows: list[Stretch] = []
        left, passes = None, set[int]()
        for stretch, looked, pull in zip(self.stretches, self.judged(), self.pulls, strict=True):
            if looked:
                whole = sum(stretch.acc)
                stretch.acc[:] = [0] * len(stretch.acc)
                stretch.acc[EVALUATION] = whole
                stretch.counts = Counts()
                if pull is not None:
                    pull.loader[0] -= 1
                    passes.add(id(pull))
            if left is not None:
                stretch.acc[EVALUATION] += left.acc[EVALUATION]
                stretch.begin, stretch.cpu_begin = left.begin, left.cpu_begin
            stretch.epoch -= len(passes)
            left = stretch if looked else None
            if not looked:
                rows.append(stretch)
        return rows, left, len(passes)

    def merge(self, acc: list[int], counts: Counts, trained: Pull | None) -> Stretch | None:
        """Adds all that was held to the first step's account and counts; returns the first stretch.

        What was asked for without gradients is an evaluation, unless it is from the iterator that is `trained` from.
        """
        for stretch, evaluated, blind in zip(self.stretches, self.evaluated, self.blind, strict=True):
            if evaluated or (blind is not None and blind is not trained):
                acc[EVALUATION] += sum(stretch.acc)
                continue
            for phase, ns in enumerate(stretch.acc):
                acc[phase] += ns
            counts.add(stretch.counts)
        return self.stretches[0] if self.stretches else None

"""Spans, the pieces between two events that may change which step a time belongs to, and the row of a whole step.

A span is the smallest piece that belongs as a whole to a step or to an evaluation. Spans are cut where the loop
requests a batch, where an optimizer has stepped, and where an evaluation may begin or end. If it turns out later that a
span was an evaluation's (one that recorded gradients for nothing, say), only its flag `evaluation` changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any, Final

from gpu_doctor.recording.steps import OURS, PHASE_COUNT

_NAN: Final = float("nan")
_UNREAD: Final = (_NAN,) * 10
"""Values of the device's columns when a step ends: `StepTable.add_device` fills them later."""
_COUNTS: Final = ("batches", "edge_ns", "transfers", "transfer_bytes", "pageable", "syncs", "closures")
_NOTHING: Final = (0,) * PHASE_COUNT


class Span:
    """A piece of the loop. Most attributes have defaults on the class, so that creating a span costs little."""

    samples = 0.0
    forward_samples = _NAN
    """Input samples of the training forwards; they are the step's samples if no loader is used."""
    batches = edge_ns = 0
    """`edge_ns`: the part of the data wait at an epoch's start or end, in ns."""
    transfers = transfer_bytes = pageable = syncs = closures = 0
    marks: list[Any] | None = None
    """Marks (`gpu.marks.Marked`) if the step is marked on the device."""
    loss: int | None = None
    """Number of the loss of this span's backward, if this step's loss is stored."""
    calls: dict[Any, list[float]] | None = None
    """Costly calls by kind and place: number of calls, ns, ns in the phase `other`, bytes."""

    def __init__(self, begin: int, evaluation: bool = False) -> None:
        """Args: begin: ns of the host clock. evaluation: True if the span, with its batches, is an evaluation's."""
        self.begin, self.evaluation = begin, evaluation
        self.ns = [0] * PHASE_COUNT
        """Time by phase, in ns."""


def row(
    spans: Sequence[Span],
    begin: int,
    end: int,
    kind: float,
    requested: bool,
    cpu_ns: float,
    epoch: int,
    sync: bool,
) -> list[float]:
    """Returns the values of a step that consists of these spans, in the order of `steps.STEP_COLUMNS`.

    Args:
        spans: the step's spans, in order.
        begin: start of the step, in ns since the run began.
        end: end of the step, in ns since the run began.
        kind: TRAINING or INFERENCE.
        requested: True if a batch of a training loader was requested: zero batches then mean zero, not "no loader".
        cpu_ns: CPU time of the process in the step, in ns, NaN if unknown.
        epoch: number of the pass over the training data.
        sync: True if waits for the device were measured; their columns are NaN otherwise.
    """
    samples = edge = 0.0
    forward_samples = _NAN
    batches = transfers = nbytes = pageable = syncs = closures = evaluated = ours = 0
    ns: Sequence[int] = _NOTHING
    for span in spans:
        if span.evaluation:
            evaluated += sum(span.ns) - span.ns[OURS]
            ours += span.ns[OURS]
            continue
        ns = list(map(add, ns, span.ns)) if ns is not _NOTHING else span.ns
        if span.batches:
            batches += span.batches
            samples += span.samples
        if forward_samples != forward_samples:
            forward_samples = span.forward_samples
        edge += span.edge_ns
        if span.transfers:
            transfers += span.transfers
            nbytes += span.transfer_bytes
            pageable += span.pageable
        syncs += span.syncs
        closures += span.closures
    wait, transfer, forward, backward, optimizer, synced, evaluation, loss, no_grad, _, own = ns
    return [
        begin * 1e-9,
        (end - begin) * 1e-9,
        1.0,
        kind,
        samples if batches or requested else forward_samples,
        batches,
        wait * 1e-9,
        transfer * 1e-9,
        (forward + no_grad) * 1e-9,
        backward * 1e-9,
        optimizer * 1e-9,
        synced * 1e-9 if sync else _NAN,
        (evaluation + evaluated) * 1e-9,
        (own + ours) * 1e-9,
        loss * 1e-9,
        no_grad * 1e-9,
        edge * 1e-9,
        cpu_ns * 1e-9,
        transfers,
        nbytes,
        pageable,
        syncs if sync else _NAN,
        closures,
        *_UNREAD,
        0.0,
        epoch if epoch > 0 else 0,
    ]


def together(spans: Sequence[Span]) -> Span:
    """Returns one span with the sums of several, all a step's or all an evaluation's; marks are left out."""
    whole = Span(spans[0].begin, spans[0].evaluation)
    for span in spans:
        whole.ns = list(map(add, whole.ns, span.ns))
        whole.samples += span.samples
        if span.forward_samples == span.forward_samples:
            whole.forward_samples = span.forward_samples
        whole.loss = whole.loss if span.loss is None else span.loss
        whole.calls = whole.calls if span.calls is None else summed(whole.calls or {}, span.calls)
        for name in _COUNTS:
            setattr(whole, name, getattr(whole, name) + getattr(span, name))
    return whole


def summed(calls: Mapping[Any, list[float]], others: Mapping[Any, list[float]]) -> dict[Any, list[float]]:
    """Returns the summed costly calls of two spans, see `Span.calls`."""
    found = dict(calls)
    for key, sums in others.items():
        found[key] = list(map(add, found[key], sums)) if key in found else sums
    return found

"""Spans of a training loop: what lies between two events that may change whose time it is, and the row of a whole step.

A span is the smallest piece that belongs to one thing as a whole: to its step, or to an evaluation. It is cut where the
loop asks for a batch, where an optimizer has stepped, and where an evaluation may begin or end. To find out later what
it was (an evaluation that recorded gradients for nothing, say) is to turn one switch, `evaluation`; nothing has to be
moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any, Final

from gpu_doctor.recording.steps import OURS, PHASE_COUNT

_NAN: Final = float("nan")
_UNREAD: Final = (_NAN,) * 10
"""The device's columns of a step that ends: `StepTable.add_device` fills them later."""
_COUNTS: Final = ("batches", "edge_ns", "transfers", "transfer_bytes", "pageable", "syncs", "closures")
_NOTHING: Final = (0,) * PHASE_COUNT


class Span:
    """A piece of the loop. What most spans have none of stands on the class, so that making one costs little."""

    samples = 0.0
    forward_samples = _NAN
    """Samples of the forwards that are learned from: the step's, where nothing was pulled."""
    batches = edge_ns = 0
    """`edge_ns`: of the wait for data, what an epoch's edge took."""
    transfers = transfer_bytes = pageable = syncs = closures = 0
    marks: list[Any] | None = None
    """`gpu.marks.Marked`, where the step is marked on the device."""
    loss: int | None = None
    """The number of the loss of this span's backward, if this step's loss is kept."""
    calls: dict[Any, list[float]] | None = None
    """Costly calls: kind and place -> calls, ns, ns in `other`, bytes."""

    def __init__(self, begin: int, evaluation: bool = False) -> None:
        """Args: begin: ns of the host clock. evaluation: it is an evaluation's, its batches are none of a step's."""
        self.begin, self.evaluation = begin, evaluation
        self.ns = [0] * PHASE_COUNT
        """By phase."""


def row(
    spans: Sequence[Span],
    begin: int,
    end: int,
    kind: float,
    asked: bool,
    cpu_ns: float,
    epoch: int,
    sync: bool,
) -> list[float]:
    """The values of a step that consists of these spans, in the order of `steps.STEP_COLUMNS`.

    Args:
        spans: in their order.
        begin: ns since the run began.
        end: as `begin`.
        kind: TRAINING or INFERENCE.
        asked: a training loader was asked for a batch: no batch then means none, and not "no loader".
        cpu_ns: of the process, NaN if unknown.
        epoch: its number.
        sync: whether waits for a device were measured (NaN if not).
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
        samples if batches or asked else forward_samples,
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
    """One span with the sums of several, all of a step's own or all of an evaluation's; marks are left out."""
    one = Span(spans[0].begin, spans[0].evaluation)
    for span in spans:
        one.ns = list(map(add, one.ns, span.ns))
        one.samples += span.samples
        if span.forward_samples == span.forward_samples:
            one.forward_samples = span.forward_samples
        one.loss = one.loss if span.loss is None else span.loss
        one.calls = one.calls if span.calls is None else summed(one.calls or {}, span.calls)
        for name in _COUNTS:
            setattr(one, name, getattr(one, name) + getattr(span, name))
    return one


def summed(calls: Mapping[Any, list[float]], others: Mapping[Any, list[float]]) -> dict[Any, list[float]]:
    """The costly calls of two spans together, see `Span.calls`."""
    found = dict(calls)
    for key, sums in others.items():
        found[key] = list(map(add, found[key], sums)) if key in found else sums
    return found

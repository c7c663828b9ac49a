"""Rule for a run that fitted into the GPU's memory but may not fit the next time: a risk, which costs nothing yet."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import retries
from gpu_doctor.diagnosis.rules.prescriptions import SEGMENTS, without_graph
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

CAUSES: Final = (
    Cause(
        "near-out-of-memory",
        """
        Peak memory is so close to the GPU's limit that a slightly larger batch would end the run.

        What it means
            At its peak the run needed more than 90 % of the GPU's memory: what torch had allocated, plus what CUDA
            itself and other processes hold.

        Why it costs you
            It is a risk and has no price. When memory is short, the allocator releases its cache and tries again, and
            the GPU stands still each time. A longer sentence, a larger image or an evaluation with another batch size
            ends the run.

        What to try
            Halve the batch and accumulate two micro-batches per step: the gradients are the same except for batch
            statistics. Or use activation checkpointing, half precision, and `torch.inference_mode()` in evaluations.
            For predictions, use `torch.inference_mode()` first, and then a smaller batch, which does not change the
            results.

        In code
            # sick
            h = block(h)
            # cured
            h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)

        When to leave it
            Leave it if all batches have one size, the run included an evaluation, and no retry was counted.
        """,
        ("peak_bytes", "memory_total_bytes", "peak_share"),
    ),
    Cause(
        "fragmented-memory",
        """
        The allocator holds far more of the GPU's memory than is in use, in pieces too small for new requests.

        What it means
            torch keeps freed memory in blocks. If sizes change from step to step, it splits the blocks, and a large
            request fits into no piece although the sum would suffice.

        Why it costs you
            It is a risk and has no price. When a request fits nowhere, the allocator releases its cache and requests
            memory from the driver again, and the GPU stands still meanwhile. The run may end out of memory with
            gigabytes unused.

        What to try
            Set `expandable_segments:True`, which joins free pieces. Pad or bucket the inputs to few sizes. Run the
            largest batch first.

        In code
            # sick
            import torch
            # cured
            import os
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
            import torch  # after it

        When to leave it
            Leave it if no allocation had to be retried and nothing else needs the memory.
        """,
        ("peak_bytes", "memory_total_bytes", "reserved_peak_bytes"),
    ),
)

NEAR_SHARE: Final = 0.90
"""Part of the card's memory from which on the peak is near the limit: torch-tb-profiler's bar for its memory view
(TraceML 0.5: 92 %)."""
RATIO: Final = 2.0
"""Smallest reserved memory over allocated memory, at their peaks, that counts as fragmented (TraceML 0.5)."""
MATTERS_SHARE: Final = 0.5
"""Part of the card's memory that must be reserved for it to matter; with less, enough memory is free."""
GREW_SHARE: Final = 0.25
"""Part of the reserved memory that this run must have added; the rest may be an earlier cell's cache, which is no
fragmentation."""
GAP_SHARE: Final = 0.10
"""Part of the card's memory that must be reserved and unused if an allocation was retried."""
HALVED: Final = Prescription(
    "Halve the batch and step the optimizer every second batch",
    Safety.BY_HAND,
    code="(criterion(model(x), y) / 2).backward()\n"
    "if (i + 1) % 2 == 0:\n"
    "    optimizer.step(); optimizer.zero_grad(set_to_none=True)",
)
CHECKPOINTED: Final = Prescription(
    "Recompute activations in the backward instead of keeping them",
    Safety.BY_HAND,
    code="from torch.utils.checkpoint import checkpoint\nh = checkpoint(block, h, use_reentrant=False)",
)
IN_PARTS: Final = "outputs = torch.cat([model(part) for part in inputs.split(len(inputs) // 2)])"
FEW_SIZES: Final = Prescription("Pad or bucket the inputs to few sizes, and run the largest first", Safety.BY_HAND)


def check(vitals: Vitals) -> Finding | None:
    """Reports a peak that leaves less than a tenth of the card free, or else fragmented memory."""
    if not vitals.on_gpu or vitals.peak_bytes is None or not vitals.memory_total_bytes:
        return None
    if vitals.outcome == "out-of-memory":
        return None  # the risk has come true: see out_of_memory
    return _near(vitals, vitals.peak_bytes, vitals.memory_total_bytes) or _fragmented(
        vitals, vitals.peak_bytes, vitals.memory_total_bytes
    )


def _near(vitals: Vitals, peak: float, total: float) -> Finding | None:
    """Reports a peak of more than 90 % of the card's memory; `peak` and `total` are in bytes."""
    outside = vitals.outside_torch_bytes
    share = (peak + outside) / total
    if share <= NEAR_SHARE or vitals.peak_share is None:
        return None
    others = (f"CUDA itself and other processes hold {formatting.size(outside)} more",) if outside else ()
    return Finding(
        rule="near-out-of-memory",
        kind="hint",
        headline=f"The GPU's memory is nearly full: the peak takes {formatting.share(min(share, 1.0))} of it.",
        cost_share=None,
        evidence=(
            f"at the peak, torch had allocated {formatting.size(peak)} of {formatting.size(total)}",
            *others,
            *retries(vitals),
        ),
        prescriptions=_predicting(vitals) if vitals.predicts else (HALVED, CHECKPOINTED),
        risk="A slightly larger batch, or an evaluation in between, would end the run with an out-of-memory error.",
    )


def _predicting(vitals: Vitals) -> tuple[Prescription, ...]:
    """Returns the prescriptions for a loop that predicts: no gradients, and fewer samples at a time."""
    batch = vitals.loader.batch_size if vitals.loader is not None else None
    code = f"DataLoader(..., batch_size={batch // 2})" if batch and batch > 1 else IN_PARTS
    return (*without_graph(vitals), Prescription("Run on fewer samples at a time", Safety.BY_HAND, code=code))


def _fragmented(vitals: Vitals, peak: float, total: float) -> Finding | None:
    """Reports reserved memory far above the peak in use; `peak` and `total` are in bytes."""
    reserved = vitals.reserved_peak_bytes
    if reserved is None or not peak:
        return None
    grew = reserved - (vitals.reserved_first_bytes or 0.0)
    retried = (vitals.alloc_retries or 0.0) >= 1 and reserved - peak >= GAP_SHARE * total
    hoarded = reserved >= RATIO * peak and reserved >= MATTERS_SHARE * total and grew >= GREW_SHARE * reserved
    if not retried and not hoarded:
        return None
    split = vitals.inactive_split_bytes
    return Finding(
        rule="fragmented-memory",
        kind="hint",
        headline=f"The GPU's memory is fragmented: {formatting.size(reserved - peak)} is reserved and never used.",
        cost_share=None,
        evidence=(
            f"torch has reserved {formatting.size(reserved)} of {formatting.size(total)}, of which at most "
            f"{formatting.size(peak)} was used",
            *((f"free pieces inside blocks in use: {formatting.size(split)}",) if split else ()),
            *retries(vitals),
        ),
        prescriptions=(SEGMENTS, FEW_SIZES),
        risk="A large request may fit into no free piece and end the run, although the sum would suffice.",
    )

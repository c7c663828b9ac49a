"""The allocator holds far more of the GPU's memory than is in use, in pieces that are too small for new requests.

What it means
    torch keeps freed memory in blocks. Where sizes change from step to step, blocks are split, and a large request fits
    into no piece although the sum is there.

Why it costs you
    When a request fits nowhere, the allocator gives everything back and asks the driver again: the GPU stands still
    meanwhile, and the run may end out of memory with gigabytes unused.

What to try
    Expandable segments, which join free pieces. Pad or bucket inputs to few sizes. Run the largest batch first.

When to leave it
    When no allocation had to be retried and nothing else needs the memory.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import retries
from gpu_doctor.diagnosis.rules.memory.out_of_memory import SEGMENTS
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("peak_bytes", "memory_total_bytes", "reserved_peak_bytes")

RATIO = 2.0
"""Reserved over allocated at their peaks (TraceML 0.5)."""
MATTERS_SHARE = 0.5
"""Of the card: below it, what is held in vain is missed by nobody."""
GREW_SHARE = 0.25
"""Of what is reserved, taken in this run: the rest may be an earlier cell's cache, which is no fragmentation."""
GAP_SHARE = 0.10
"""With retries: unused memory of so much of the card while requests did not fit."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where requests had to be retried beside much unused memory, or twice the peak is held and missed."""
    peak, total, reserved = vitals.peak_bytes, vitals.memory_total_bytes, vitals.reserved_peak_bytes
    if peak is None or not total or reserved is None or not peak or not vitals.on_gpu:
        return None
    grew = reserved - (vitals.reserved_first_bytes or 0.0)
    retried = (vitals.alloc_retries or 0.0) >= 1 and reserved - peak >= GAP_SHARE * total
    hoarded = reserved >= RATIO * peak and reserved >= MATTERS_SHARE * total and grew >= GREW_SHARE * reserved
    if not retried and not hoarded:
        return None
    evidence = [
        f"torch has reserved {formatting.size(reserved)} of {formatting.size(total)}, "
        f"of which at most {formatting.size(peak)} was used"
    ]
    if vitals.inactive_split_bytes:
        evidence.append(f"free pieces inside of blocks in use: {formatting.size(vitals.inactive_split_bytes)}")
    return Finding(
        rule="fragmented-memory",
        headline=f"The GPU's memory is fragmented: {formatting.size(reserved - peak)} is held and never used.",
        cost_share=None,
        kind="hint",
        evidence=(*evidence, *retries(vitals)),
        prescriptions=(
            SEGMENTS,
            Prescription("Pad or bucket the inputs to few sizes, and run the largest first", Safety.BY_HAND),
        ),
        risk="A large request may find no piece that fits and end the run, although the sum is there.",
    )

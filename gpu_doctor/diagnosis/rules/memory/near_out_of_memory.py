"""The peak of memory is so near to what the GPU has that a slightly larger batch ends the run.

What it means
    At its peak the run needed more than 90 % of the GPU's memory: what torch had allocated, and what CUDA itself and
    other processes hold beside it.

Why it costs you
    Nothing yet, or some: when memory is short the allocator releases its cache and asks again, and each time the GPU
    stands still. A longer sentence, a larger image or an evaluation with another batch size ends the run.

What to try
    Half the batch with two micro-batches a step (the same gradients, but for batch statistics), activation
    checkpointing, half precision, and `torch.inference_mode()` in evaluations. Predictions: that mode first, and a
    smaller batch, which changes nothing in them.

When to leave it
    When all batches have one size, evaluation was in the run, and no retry was counted: then it just fits.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import retries
from gpu_doctor.diagnosis.rules.prescriptions import without_graph
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("peak_bytes", "memory_total_bytes", "peak_share")

NEAR_SHARE = 0.90
"""torch-tb-profiler's bar for its memory view (TraceML 0.5: 92 %)."""

HALVED = Prescription(
    text="Halve the batch and step the optimizer every second batch",
    safety=Safety.BY_HAND,
    code="(criterion(model(x), y) / 2).backward()\n"
    "if (i + 1) % 2 == 0:\n"
    "    optimizer.step(); optimizer.zero_grad(set_to_none=True)",
)
CHECKPOINTED = Prescription(
    text="Recompute activations in the backward instead of keeping them",
    safety=Safety.BY_HAND,
    code="from torch.utils.checkpoint import checkpoint\nh = checkpoint(block, h, use_reentrant=False)",
)

IN_PARTS = "outputs = torch.cat([model(part) for part in inputs.split(len(inputs) // 2)])"


def check(vitals: Vitals) -> Finding | None:
    """Fires where what the run needs at once leaves less than a tenth of the card."""
    peak, total = vitals.peak_bytes, vitals.memory_total_bytes
    if peak is None or not total or not vitals.on_gpu:
        return None
    beside = vitals.beside_bytes
    share = (peak + beside) / total
    if share <= NEAR_SHARE:
        return None
    evidence = [f"at the peak, torch had allocated {formatting.size(peak)} of {formatting.size(total)}"]
    if beside:
        evidence.append(f"CUDA itself and other processes hold {formatting.size(beside)} more")
    return Finding(
        rule="near-out-of-memory",
        headline=f"The GPU's memory is nearly full: the peak takes {formatting.share(min(share, 1.0))} of it.",
        cost_share=None,
        kind="hint",
        evidence=(*evidence, *retries(vitals)),
        prescriptions=_predicting(vitals) if vitals.predicts else (HALVED, CHECKPOINTED),
        risk="A slightly larger batch, or an evaluation beside it, ends the run with an out-of-memory error.",
    )


def _predicting(vitals: Vitals) -> tuple[Prescription, ...]:
    """Where nothing is trained a smaller batch gives the same results, and there are no activations to keep."""
    batch = vitals.loader.batch_size if vitals.loader is not None else None
    code = f"DataLoader(..., batch_size={batch // 2})" if batch and batch > 1 else IN_PARTS
    return (*without_graph(vitals), Prescription("Run on fewer samples at a time", Safety.BY_HAND, code=code))

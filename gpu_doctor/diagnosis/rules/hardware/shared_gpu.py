"""Other processes compute on the same GPU, or hold a good part of its memory.

What it means
    NVML sees processes that this one did not start: they take turns with its kernels, or hold memory that this run
    cannot have. Inside a container they may show only as memory that no process here holds.

Why it costs you
    Kernels of different processes run one after the other: what the others compute, this run waits for, at most.

What to try
    Shut down notebooks that are no longer needed: their kernels hold the memory until they end. Use another GPU.

When to leave it
    When the GPU is shared on purpose and there is no other.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("device_used_bytes", "memory_total_bytes")

UTIL_PCT = 5.0
"""Below, the others may be a desktop or a monitor."""
HELD_SHARE = 0.10
"""Of the card, held by others: so much smaller the batch has to be."""
UNSEEN_BYTES = float(4 << 30)
"""In use beyond torch's own, where the driver lists nobody: CUDA's context and libraries take 0.3 to 2 GiB."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on kernels of others, priced, or on their memory, as a risk."""
    total = vitals.memory_total_bytes
    if not total:
        return None
    util, count = vitals.other_processes_util_pct, vitals.other_processes
    held = vitals.other_processes_bytes
    if held is None and count is None and vitals.beside_bytes >= UNSEEN_BYTES:
        held = vitals.beside_bytes
    computes = util is not None and util >= UTIL_PCT
    hoards = held is not None and held >= HELD_SHARE * total
    if not computes and not hoards:
        return None
    evidence = []
    if count:
        evidence.append(f"{round(count)} other process{'es' * (count != 1)} on the GPU")
    if held:
        evidence.append(f"others hold {formatting.size(held)} of {formatting.size(total)}")
    cost = min((util or 0.0) / 100.0, 1.0) * (vitals.gpu_busy_share or 0.0) if computes else 0.0
    said = f"they keep it busy {formatting.share((util or 0.0) / 100.0)} of the time" if computes else ""
    if not said and held is not None:
        said = f"{formatting.share(held / total)} of its memory is not available to this run"
    return Finding(
        rule="shared-gpu",
        headline=f"Others use the same GPU: {said}.",
        cost_share=cost,
        evidence=tuple(evidence),
        prescriptions=(
            Prescription(
                "Shut down what is not needed (often a forgotten kernel), or use another GPU",
                Safety.BY_HAND,
                code='!nvidia-smi\n# before torch is imported: os.environ["CUDA_VISIBLE_DEVICES"] = "1"',
            ),
        ),
        risk="" if computes else "A batch that fits on an empty card may not fit here.",
    )

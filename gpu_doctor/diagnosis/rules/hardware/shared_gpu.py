"""Other processes compute on the same GPU, or hold a good part of its memory.

What it means
    NVML reports processes that this one did not start. Their kernels take turns with yours, or they hold memory that
    this run cannot have. Inside a container they may show only as memory that no visible process holds.

Why it costs you
    Kernels of different processes run one after the other, so this run waits for the others' kernels. The cost is a
    bound: the time in which the others keep the GPU busy. Memory that others hold costs no time, but limits your batch
    size.

What to try
    Shut down notebooks that you no longer need: a kernel holds its memory until it ends. `nvidia-smi` lists the
    processes. Or use another GPU.

In code
    # sick
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # the GPU that others use
    # cured
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"  # before torch is imported

When to leave it
    Leave it if the GPU is shared on purpose and there is no other.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("device_used_bytes", "memory_total_bytes")

UTIL_PCT: Final = 5.0
"""Utilisation by other processes, in per cent, below which they may be a desktop or a monitor."""
HELD_SHARE: Final = 0.10
"""Part of the card's memory, held by other processes, that is worth reporting: the batch must be smaller by as much."""
UNSEEN_BYTES: Final = float(4 << 30)
"""Bytes in use beyond torch's own that count as other processes' if the driver lists none: CUDA's context and libraries
take 0.3 to 2 GiB."""
ALONE: Final = Prescription(
    "Shut down what is not needed (often a forgotten kernel), or use another GPU",
    Safety.BY_HAND,
    code='!nvidia-smi\n# before torch is imported: os.environ["CUDA_VISIBLE_DEVICES"] = "1"',
)


def check(vitals: Vitals) -> Finding | None:
    """Reports kernels of other processes with a bound, or else their memory as a risk."""
    total, util, count = vitals.memory_total_bytes, vitals.other_processes_util_pct or 0.0, vitals.other_processes
    if not total:
        return None
    others_bytes = vitals.other_processes_bytes
    if others_bytes is None and count is None and vitals.outside_torch_bytes >= UNSEEN_BYTES:
        others_bytes = vitals.outside_torch_bytes
    evidence = [f"{round(count)} other process{'es' * (count != 1)} on the GPU"] if count else []
    evidence += [f"they hold {formatting.size(others_bytes)} of {formatting.size(total)}"] if others_bytes else []
    if util >= UTIL_PCT:
        cost = min(util / 100.0, 1.0) * (vitals.gpu_busy_share or 0.0)
        headline = f"Other processes keep the GPU busy {formatting.percent(util)} of the time (at most "
        headline += f"{formatting.share(cost)} to gain)."
        return Finding("shared-gpu", headline, cost, tuple(evidence), (ALONE,), kind="at-most")
    if others_bytes is None or others_bytes < HELD_SHARE * total:
        return None
    headline = f"Other processes hold {formatting.share(others_bytes / total)} of the GPU's memory."
    risk = "A batch that fits on an empty card may not fit here."
    return Finding("shared-gpu", headline, None, tuple(evidence), (ALONE,), risk=risk, kind="hint")

"""The GPU finishes each step's work before the host has launched the next: its queue never fills.

What it means
    The step consists of many small kernels. Launching one costs the host microseconds, running it costs the GPU less.

Why it costs you
    The GPU idles between kernels; its utilisation figure looks low although nothing waits for data.

What to try
    A larger batch gives each launch more to do; `torch.compile` or CUDA graphs launch fewer, larger pieces.

When to leave it
    When the model is meant to be this small: then a low utilisation is fine, and a CPU may be as fast.
"""

from gpu_doctor.rules import idling
from gpu_doctor.rules.cures import larger_batch
from gpu_doctor.rules.evidence import percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("queue_empty_share", "gpu_util_pct", "exposed_wait_share", "sync_share")
EXCLUDES = ("full-precision", "small-batch")

EMPTY_SHARE = 0.8
"""The queue is empty at the end of at least 80 % of steps (catalogue)."""
BUSY_PCT = 70.0
"""And the GPU is busy below 70 % (catalogue)."""
SYNC_SHARE = 0.05
"""Above, the waits themselves empty the queue (host-sync)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the queue runs dry without a wait for data or for values."""
    empty, util = vitals.queue_empty_share, vitals.gpu_util_pct
    wait, sync = vitals.exposed_wait_share, vitals.sync_share
    if empty is None or util is None or wait is None or sync is None:
        return None
    idle = 1.0 - util / 100.0 - wait - (vitals.exposed_transfer_share or 0.0) - idling.idle_elsewhere(vitals)
    # Launches are made in these phases alone: while the host is elsewhere (slow-python), it launches nothing.
    launching = [vitals.forward_share, vitals.loss_share, vitals.backward_share, vitals.optimizer_share]
    cost = max(min(idle, sum(share for share in launching if share is not None)), 0.0)
    if empty < EMPTY_SHARE or util >= BUSY_PCT or sync >= SYNC_SHARE:
        return None
    return Finding(
        rule="launch-bound",
        headline=f"The GPU outruns the host: about {percent(cost)} of the time it waits for launches.",
        cost_share=cost,
        evidence=(f"the queue is empty at the end of {percent(empty)} of steps; NVML utilisation {util:.0f} %",),
        prescriptions=(larger_batch(vitals) or _compiled(vitals),),
    )


def _compiled(vitals: Vitals) -> Prescription:
    """Where no larger batch can be advised: fewer, larger launches."""
    if vitals.compiled:
        code = 'model = torch.compile(model, mode="reduce-overhead")'
        return Prescription(text="Launch the compiled model as CUDA graphs", safety=Safety.BY_HAND, code=code)
    return Prescription(text="Compile the model", safety=Safety.BY_HAND, code="model = torch.compile(model)")

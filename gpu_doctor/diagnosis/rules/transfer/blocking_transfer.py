"""Batches lie in pinned memory, but the loop waits for each copy: `non_blocking=True` is missing.

What it means
    `.to(device)` of a pinned tensor waits until the copy is done, and before that until all work queued on the GPU is
    done. Pinning alone makes the copy faster; only `non_blocking=True` lets the host go on.

Why it costs you
    The host cannot launch the next step while it waits. When the copy is done, the GPU's queue is empty, and it idles
    until the first launches arrive.

What to try
    `batch.to(device, non_blocking=True)`, and the copy of the next batch before this step's results are read.

When to leave it
    When the host reads the tensor from the device right away, or overwrites the pinned buffer right after the copy
    (then the GPU would get the new values).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.removed_work import Gain
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety, faster
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("pageable_share", "exposed_transfer_share", "traffic", "step_wall_s", "transfer_bytes_per_step"),
    "link_bytes_per_s",
)

MOSTLY = 0.5
"""At least half of the copies start from pinned memory and are waited for."""
KNOB = "non_blocking"


def check(vitals: Vitals) -> Finding | None:
    """Fires where copies from pinned memory are waited for, as far as the wait is more than the copying itself."""
    exposed, pageable, traffic = vitals.exposed_transfer_share, vitals.pageable_share, vitals.traffic
    step_s, nbytes = vitals.step_wall_s, vitals.transfer_bytes_per_step
    if exposed is None or pageable is None or traffic is None or not step_s or nbytes is None:
        return None
    if pageable >= MOSTLY or vitals.settings.get(KNOB) is True or not _waited_for(vitals):
        return None
    told = forecast(vitals, {KNOB: True})
    if told is None:
        return None
    held_s = (vitals.transfer_share or 0.0) * (vitals.host_step_s or 0.0)
    copying_s = told.step_s - (1.0 - exposed) * step_s
    copying, exposed = copying_s / step_s, exposed + behind_share(vitals)
    # The copy itself remains; but beside launches that take longer than it, a GPU that outruns its host has the time.
    cost = min(exposed, 1.0 - copying) if vitals.gpu_outruns_host else exposed - copying
    cost = gpu_pace.at_most(vitals, cost)
    return Finding(
        rule="blocking-transfer",
        headline=f"The loop waits for each batch's copy: {formatting.share(cost)} of the time the GPU has nothing to "
        "do, though the memory is pinned.",
        cost_share=cost,
        evidence=(
            f"{traffic.blocking_pinned} of {traffic.to_device} copies from pinned memory without non_blocking=True",
            f"copies hold the host up for {formatting.seconds(held_s)} a step; "
            f"copying {formatting.size(nbytes)} takes {formatting.seconds(copying_s)} over {vitals.link_name}",
        ),
        prescriptions=(
            Prescription(
                text="Copy without waiting",
                safety=Safety.SAFE,
                settings={KNOB: True},
                code="batch = batch.to(device, non_blocking=True)",
            ).expecting(Gain(faster(cost), 1.0, max(told.high, faster(cost))), at_most=True),
        ),
    )


def behind_share(vitals: Vitals) -> float:
    """Share of the wall-clock, 0..1, that the GPU idles behind such copies, besides copying.

    The host waits in them until the queue is empty. What it does then, before it launches again, the queue would have
    hidden: no more than it has waited.
    """
    exposed, gap = vitals.exposed_transfer_share or 0.0, vitals.gpu_gap_share or 0.0
    if not vitals.on_gpu or not _waited_for(vitals) or vitals.settings.get(KNOB) is True:
        return 0.0
    idle = gap - exposed - vitals.tripped_share - (vitals.exposed_wait_share or 0.0)
    return max(min(idle, (vitals.transfer_share or 0.0) - exposed), 0.0)


def _waited_for(vitals: Vitals) -> bool:
    """Whether most copies start from pinned memory, and are waited for."""
    traffic = vitals.traffic
    return traffic is not None and traffic.to_device > 0 and traffic.blocking_pinned >= MOSTLY * traffic.to_device

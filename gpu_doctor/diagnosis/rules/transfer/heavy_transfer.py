"""The batches are so large that the link to the GPU is busy with them for a large part of every step.

What it means
    Data travels in a wide form: images as float32 instead of uint8 (4 times the bytes), classes as one-hot vectors
    instead of indices, padding that nobody needs. Even over a fast link the copy takes a tenth of the step.

Why it costs you
    The copy is in the same queue as the computing unless the loop prefetches to the GPU on a stream of its own: while
    it runs, nothing is computed. Pinning helps, but not beyond the link.

What to try
    Send uint8 or indices and convert on the GPU (`x.to(device).float().div_(255)`, `F.one_hot` on the device); crop and
    resize before the copy; keep small data sets on the GPU altogether.

When to leave it
    When the data is wide by nature (measured floats) and half precision would lose what you need.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("gpu_gap_share", "exposed_wait_share", "traffic", "transfer_bytes_per_step", "transfer_share", "step_wall_s"),
    "link_bytes_per_s",
)

LINK_SHARE = 0.10
"""The link is busy for a tenth of the step (catalogue)."""
WIDE_SHARE = 0.5
"""Half of the bytes must be floats of large tensors, else there is nothing to send narrower."""
NARROWER = 0.75
"""uint8 for float32 saves three quarters of the bytes."""
MOSTLY = 0.5
"""With at least half of the copies waited for, seconds in `.to()` are seconds of copying."""

LINK_USED = 0.8
"""Of a link's nominal bytes/s that copies of pinned memory get (25 of 31.5 GB/s over 16 lanes of PCIe 4)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the bytes alone take a tenth of the step on a fast link, and the GPU idles for it."""
    gap, wait, traffic = vitals.gpu_gap_share, vitals.exposed_wait_share, vitals.traffic
    nbytes, step_s = vitals.transfer_bytes_per_step, vitals.step_wall_s
    if gap is None or wait is None or traffic is None or not nbytes or not step_s or not traffic.to_device:
        return None
    if vitals.link_bytes_per_s is None:
        return None
    speed = link_speed(vitals)
    copying_s = nbytes / max(speed or 0.0, LINK_USED * vitals.link_bytes_per_s)
    link = copying_s / step_s
    if link < LINK_SHARE or traffic.wide_bytes < WIDE_SHARE * traffic.to_device_bytes:
        return None
    # The copy lies in the GPU's gap, waited for or not, unless a stream of its own hides it. What waiting costs beyond
    # it is another rule's (blocking-transfer, pageable-transfer).
    cost = gpu_pace.at_most(vitals, min(link, max(gap - wait, 0.0)))
    if cost < LINK_SHARE:
        return None
    saved = NARROWER * traffic.wide_bytes / traffic.to_device_bytes * cost
    a_sample = f" ({formatting.size(nbytes / vitals.samples_per_step)} a sample)" if vitals.samples_per_step else ""
    return Finding(
        rule="heavy-transfer",
        headline=f"{formatting.size(nbytes)} a step are copied to the GPU, which waits for them "
        f"{formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{formatting.size(nbytes)} a step{a_sample}, "
            f"{formatting.share(traffic.wide_bytes / traffic.to_device_bytes)} of it large float tensors",
            f"that takes {formatting.seconds(copying_s)} of a step of {formatting.seconds(step_s)} over "
            f"{vitals.link_name}" + (f"; measured {formatting.bandwidth(speed)}" if speed else ""),
        ),
        prescriptions=(
            Prescription(
                text="Send the data narrow and convert it on the GPU",
                safety=Safety.BY_HAND,
                code="x = x.to(device, non_blocking=True)  # uint8\nx = x.float().div_(255)  # on the GPU",
            ).saving_at_most(saved),
        ),
    )


def link_speed(vitals: Vitals) -> float | None:
    """Bytes/s of the copies where they are waited for; None where they are not, or none was seen to take time.

    Such a copy also waits for the work queued before it, so this is the least that the link can do.
    """
    traffic, share, step_s = vitals.traffic, vitals.transfer_share, vitals.host_step_s
    if traffic is None or not share or not step_s or not traffic.to_device or not vitals.transfer_bytes_per_step:
        return None
    waited = (vitals.pageable_share or 0.0) + traffic.blocking_pinned / traffic.to_device
    return vitals.transfer_bytes_per_step / (share * step_s) if waited >= MOSTLY else None

"""Each step sends many small tensors to the GPU one by one; the calls cost more than the bytes.

What it means
    A batch arrives in eight or more pieces of a few kilobytes (fields of a dictionary, scalars, masks, positions), or
    the loop makes constants on the host and moves them over.

Why it costs you
    Every copy costs the host several microseconds of call and driver, and from pageable memory a wait, however few
    bytes it moves. Pinning does not change that.

What to try
    Pack the pieces into one tensor in the collate and split it on the GPU (views cost nothing); create constants there
    (`torch.arange(n, device=device)`), once, outside the loop.

When to leave it
    When the GPU has work queued meanwhile.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("caught_up_share", "traffic", "transfers_per_step", "transfer_bytes_per_step"),
    *("transfer_share", "exposed_transfer_share", "step_wall_s"),
)
EXCLUDES = ("pageable-transfer", "blocking-transfer")

COPIES = 8.0
"""So many copies a batch (catalogue; PyTorch's tuning guide: create tensors on the device)."""
SMALL_BYTES = 64e3
"""Their mean; CUDA stages pageable copies below 64 kB through its command buffer."""
MOSTLY = 0.5
"""Half of the copies are small: a mean alone could hide one large tensor among tiny ones, or the other way round."""
EMPTY_SHARE = 0.5
"""From here on the GPU waits for the host, and every second of the host in a copy is one of the loop."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where many small copies take their share of a loop that waits for the host."""
    empty, traffic, share = vitals.caught_up_share, vitals.traffic, vitals.transfer_share
    copies, nbytes, step_s = vitals.transfers_per_step, vitals.transfer_bytes_per_step, vitals.step_wall_s
    if empty is None or traffic is None or not copies or nbytes is None or share is None or not step_s:
        return None
    a_batch = copies / max(vitals.batches_per_step or 1.0, 1.0)
    if a_batch < COPIES or nbytes / copies >= SMALL_BYTES or traffic.small < MOSTLY * traffic.to_device:
        return None
    cost = gpu_pace.at_most(vitals, max(vitals.exposed_transfer_share or 0.0, share if empty >= EMPTY_SHARE else 0.0))
    saved = cost * (1.0 - 1.0 / a_batch)
    return Finding(
        rule="many-small-transfers",
        headline=f"{formatting.grouped(copies)} small copies a step to the GPU: the calls alone take "
        f"{formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(copies)} copies of {formatting.size(nbytes / copies)} a step, "
            f"{formatting.seconds(share * step_s / copies)} each; {traffic.small} of {traffic.to_device} below 64 kB",
            f"the GPU's queue is empty at the end of {formatting.share(empty)} of the steps",
            *hot_lines(vitals, ("transfer",)),
        ),
        prescriptions=(
            Prescription(
                text="Pack what goes together into one copy, and create constants on the device",
                safety=Safety.BY_HAND,
                code="packed = torch.cat([a, b, c], dim=1).to(device, non_blocking=True)\n"
                "a, b, c = packed.split(sizes, dim=1)\n"
                "positions = torch.arange(n, device=device)  # not torch.arange(n).to(device)",
            ).saving_at_most(saved),
        ),
    )

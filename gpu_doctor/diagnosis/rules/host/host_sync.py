"""The loop waits for the GPU every step (`.item()`, `.cpu()`, `print(loss)`), and then the GPU waits for the loop.

What it means
    Reading a value from the GPU stops the host until all queued work is done. Only then can it launch the next step, so
    the queue runs dry.

Why it costs you
    The GPU idles from the end of the wait until the next launches reach it.

What to try
    Read the value every n steps, add up on the device (`running += loss.detach()`), print rarely. Predictions: keep the
    outputs on the device and fetch them together, once or every so many batches.

When to leave it
    When the step is long against the gap: then the wait only shows where the GPU works. Where the gap is filled with
    other work of the host, that stays when the wait goes: the price is never more than the wait itself.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.compute.recompiles import again_share
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.rules.transfer.device_round_trips import tripping_share
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("sync_share", "gpu_gap_share", "exposed_wait_share")

GAP_SHARE = 0.05
"""The bar of the catalogue for seconds in which the GPU idles after a wait."""

LOSS = (
    "Read the loss every n steps and keep sums on the device",
    "running_loss += loss.detach()  # .item() every 100 steps",
)
OUTPUTS = (
    "Keep the outputs on the device and fetch them once, after the loop",
    "kept.append(outputs)  # in the loop, without .cpu(), .item() or .tolist()\n"
    "outputs = torch.cat(kept).cpu()  # after it, or every 100 batches where they would not fit",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where the host waits each step and the GPU's gap is not explained by fetch or copies."""
    sync, gap = vitals.sync_share, vitals.gpu_gap_share
    if sync is None or gap is None:
        return None
    # Trips to the host, calls such as torch.save and the compiler have rules of their own.
    taken = vitals.exposed_share + tripping_share(vitals) + vitals.chores_between_share + again_share(vitals)
    idle = max(gap, min(vitals.gpu_idle_at_most, 1.0 - sync))  # while the host waits, it works
    cost = max(min(idle - taken, sync * _no_trips(vitals)), 0.0)
    if sync < GAP_SHARE or cost < GAP_SHARE:
        return None
    share = ("up to " if vitals.gpu_outruns_host else "") + formatting.share(cost)
    times = "" if vitals.syncs_per_step is None else f" in {formatting.average(vitals.syncs_per_step)} waits a step"
    text, code = OUTPUTS if vitals.predicts else LOSS
    return Finding(
        rule="host-sync",
        headline=f"Waiting for values from the GPU each step leaves it idle {share} of the time.",
        cost_share=cost,
        evidence=(
            f"the host waits {formatting.share(sync)} of the time{times}; then the GPU idles until it launches again: "
            f"{formatting.share(gap)} of its time is gaps",
            *hot_lines(vitals, ("sync",)),
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
            ).saving_at_most(cost),
        ),
    )


def _no_trips(vitals: Vitals) -> float:
    """Part of the waits, 0..1, that do not belong to a trip to the host and back, by their number."""
    traffic, waits = vitals.traffic, vitals.syncs_per_step
    if traffic is None or not waits or not vitals.steps:
        return 1.0
    return max(1.0 - traffic.round_trips / vitals.steps / waits, 0.0)

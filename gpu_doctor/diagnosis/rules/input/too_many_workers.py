"""The workers cost more time than they save.

What it means
    Either the fetch computes and there are more workers than cores, so that workers wait for a core. Or the data is in
    memory, and receiving a batch from a worker process takes longer than fetching it.

Why it costs you
    The loop waits although fewer workers would deliver sooner. Each worker also takes memory, and each tensor of a
    batch passes through shared memory and a socket, however small it is. On a CPU, workers take cores from the
    training.

What to try
    Use the number of workers that the forecast gives, at most one per usable core. For data in memory use
    `num_workers=0`.

In code
    # sick
    loader = DataLoader(TensorDataset(x, y), batch_size=64, num_workers=8)
    # cured
    loader = DataLoader(TensorDataset(x, y), batch_size=64, num_workers=0)

When to leave it
    Leave it if the dataset waits for a disk or a network: more workers than cores are right then. Idle workers of a
    compute-bound loop cost memory, not time.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import stock_line
from gpu_doctor.diagnosis.rules.prescriptions import on_loader, surplus_workers
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "exposed_wait_share", "fetch_wall_s", "fetch_cpu_s", "step_wall_s")


def check(vitals: Vitals) -> Finding | None:
    """Reports a loop that waits for its workers if fewer of them, or none, are forecast to be faster."""
    fewer, now, wait = surplus_workers(vitals), vitals.workers or 0, vitals.steady_wait_share
    if fewer is None:
        return None
    count, prediction = fewer
    workers = formatting.count(now, "worker")
    queued = vitals.fetch_queued_s or 0.0
    why = f"{workers} share {formatting.cores(vitals.usable_cores)}"
    text = f"Load with {formatting.count(count, 'worker')}"
    if not count:
        why, text = f"receiving a batch from {workers} takes longer than fetching it", "Fetch in the loop itself"
    known = f", {formatting.seconds(queued)} of it waiting for a core" if queued else ""
    return Finding(
        rule="too-many-workers",
        headline=f"The loop waits for its workers {formatting.share(wait)} of the time: {why}.",
        cost_share=wait,
        evidence=(
            f"a worker takes {formatting.seconds(vitals.fetch_wall_s or 0.0)} for a batch{known}; the loop waits "
            f"{formatting.seconds(wait * (vitals.step_wall_s or 0.0))} in each step",
            f"with num_workers={count} a step would take {formatting.seconds(prediction.step_s)}",
            *stock_line(vitals),
        ),
        prescriptions=(on_loader(vitals.loader, "num_workers", count, text, prediction),),
    )

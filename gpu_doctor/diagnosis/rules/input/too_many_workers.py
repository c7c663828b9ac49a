"""Workers cost more than they save: they outnumber the cores, or handing a batch over costs more than fetching it.

What it means
    Either the fetch computes, the cores are taken, and there are more workers than cores: they wait for a core, not for
    data. Or the data lies in memory: a batch is fetched in less time than it takes to get it out of a worker process,
    so that the loop waits though batches lie ready.

Why it costs you
    Switching between processes, cold caches and memory for every worker; on a CPU device the training itself waits too.
    Each tensor of a batch goes through shared memory and a socket of its own, whatever it holds.

What to try
    As many workers as cores that are really usable, or fewer: the forecast says how many are enough. For data in memory
    none at all: `num_workers=0`.

When to leave it
    When the dataset waits for a disk or a network: then more workers than cores are right. Idle workers beside a loop
    that is bound by its model cost memory, not time.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import stock_line
from gpu_doctor.diagnosis.rules.prescriptions import on_loader, surplus_workers
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "exposed_wait_share", "fetch_wall_s", "fetch_cpu_s", "step_wall_s")


def check(vitals: Vitals) -> Finding | None:
    """Fires where the loop waits, and fewer workers, or none, are forecast to be faster."""
    fewer, now, wait = surplus_workers(vitals), vitals.workers or 0, vitals.steady_wait_share
    if fewer is None:
        return None
    count, seen = fewer
    workers = formatting.count(now, "worker")
    queued = vitals.fetch_queued_s or 0.0
    why, text = f"{workers} share {formatting.cores(vitals.usable_cores)}", f"Load with {count} of them"
    if not count:
        why, text = f"handing a batch over from {workers} takes longer than fetching it", "Fetch in the loop itself"
    known = f", {formatting.seconds(queued)} of it waiting for a core" if queued else ""
    return Finding(
        rule="too-many-workers",
        headline=f"The loop waits for its workers {formatting.share(wait)} of the time: {why}.",
        cost_share=wait,
        evidence=(
            f"a batch takes a worker {formatting.seconds(vitals.fetch_wall_s or 0.0)}{known}; the loop waits "
            f"{formatting.seconds(wait * (vitals.step_wall_s or 0.0))} in each step",
            f"with num_workers={count} a step would take {formatting.seconds(seen.step_s)}",
            *stock_line(vitals),
        ),
        prescriptions=(on_loader(vitals.loader, "num_workers", count, text, seen),),
    )

"""More workers than cores compute at the same time and take the cores from each other and from the training.

What it means
    The fetch computes, every core is taken, and there are more workers than cores: they wait for a core, not for data.

Why it costs you
    Switching between processes, cold caches and memory for every worker; on a CPU device the training itself waits too.

What to try
    As many workers as cores that are really usable, or fewer: the forecast says how many are enough.

When to leave it
    When the dataset waits for a disk or a network: then more workers than cores are right.
"""

from gpu_doctor.forecast import best_workers
from gpu_doctor.rules.evidence import millis, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "workers", "fetch_wall_s", "fetch_cpu_s", "step_wall_s", "batches_per_step")

WAITING_FOR_A_CORE = 1.5
"""A fetch whose wall seconds are so many times its CPU seconds, while all cores are taken, waits for a core."""
CPU_UTIL_PCT = 80.0
"""The machine counts as taken from here on (TraceML 0.5)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where workers outnumber the cores, the cores are taken, and the step is longer than their work."""
    wall, cpu, step_s = vitals.fetch_wall_s, vitals.fetch_cpu_s, vitals.step_wall_s
    workers, batches, cores = vitals.workers, vitals.batches_per_step, vitals.usable_cores
    if not workers or wall is None or cpu is None or not step_s or not batches or workers <= cores:
        return None
    need = (cpu * batches + (vitals.consumer_cpu_s or 0.0)) / cores
    taken = need / step_s
    full = taken >= 0.7 or ((vitals.cpu_util_pct or 0.0) >= CPU_UTIL_PCT and taken >= 0.5)
    if not full or wall < WAITING_FOR_A_CORE * cpu:
        return None
    lost = max(step_s - max(need, vitals.consumer_s or 0.0), 0.0) / step_s
    best = best_workers(vitals)
    fewer = min(best[0] if best is not None else int(cores), max(int(cores), 1))
    return Finding(
        rule="too-many-workers",
        headline=f"{workers} workers share {cores:g} cores: {percent(lost)} of the time goes into taking turns.",
        cost_share=lost,
        evidence=(
            f"a batch takes a worker {millis(wall)}, only {millis(cpu)} of it on a core",
            f"fetch and training need {millis(need)} of all cores for a step that takes {millis(step_s)}",
        ),
        prescriptions=(
            Prescription(
                text=f"Load with {fewer} worker{'s' if fewer > 1 else ''}",
                safety=Safety.SAFE,
                settings={"num_workers": fewer},
                code=f"DataLoader(..., num_workers={fewer})",
            ),
        ),
    )

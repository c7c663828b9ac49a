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

from gpu_doctor.forecast import CPU_BOUND, forecast, unqueued_fetch_s
from gpu_doctor.rules.evidence import millis, percent
from gpu_doctor.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "workers", "fetch_wall_s", "fetch_cpu_s", "step_wall_s", "batches_per_step", "data_wait_share")

WAITING_FOR_A_CORE = 1.5
"""A fetch whose wall seconds are so many times its CPU seconds, while all cores are taken, waits for a core."""
CPU_UTIL_PCT = 80.0
"""The machine counts as taken from here on (TraceML 0.5)."""
TAKEN = 0.7
"""Loop and workers use this part of all cores themselves (measured: queueing costs little below)."""
TAKEN_HERE = 0.5
"""Or this part, while the machine as a whole is taken."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where workers outnumber the cores, compute rather than wait, and fewer are forecast to be faster."""
    wall, cpu, step_s = vitals.fetch_wall_s, vitals.fetch_cpu_s, vitals.step_wall_s
    workers, batches, cores = vitals.workers, vitals.batches_per_step, vitals.usable_cores
    alone_s = unqueued_fetch_s(vitals)
    if not workers or wall is None or cpu is None or not step_s or not batches or workers <= cores or not alone_s:
        return None
    need = (cpu * batches + (vitals.consumer_cpu_s or 0.0)) / cores
    taken = need / step_s
    full = taken >= TAKEN or ((vitals.cpu_util_pct or 0.0) >= CPU_UTIL_PCT and taken >= TAKEN_HERE)
    computing = cpu * batches >= CPU_BOUND * alone_s
    fewer = max(int(cores), 1)
    seen = forecast(vitals, {"num_workers": fewer})
    if not full or not computing or wall < WAITING_FOR_A_CORE * cpu or seen is None:
        return None
    cost = 1.0 - 1.0 / seen.speedup
    if cost < NAMING_BAR:
        return None
    refusal = vitals.loader.refusals.get("num_workers", "") if vitals.loader is not None else ""
    return Finding(
        rule="too-many-workers",
        headline=f"{workers} workers share {cores:g} cores: {percent(cost)} of the time goes into taking turns.",
        cost_share=cost,
        evidence=(
            f"a batch takes a worker {millis(wall)}, only {millis(cpu)} of it on a core",
            f"fetch and training need {millis(need)} of all cores for a step that takes {millis(step_s)}",
        ),
        prescriptions=(
            Prescription(
                text=f"Load with {fewer} worker{'s' if fewer > 1 else ''}",
                safety=Safety.BY_HAND if refusal else Safety.SAFE,
                settings={} if refusal else {"num_workers": fewer},
                code=f"DataLoader(..., num_workers={fewer})",
                predicted_speedup=seen.speedup,
                predicted_low=seen.low,
                predicted_high=seen.high,
            ),
        ),
    )

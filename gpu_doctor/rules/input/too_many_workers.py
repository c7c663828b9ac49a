"""More workers than cores compute at the same time and take the cores from each other and from the training.

What it means
    The fetch computes, the cores are taken, and there are more workers than cores: they wait for a core, not for data.

Why it costs you
    Switching between processes, cold caches and memory for every worker; on a CPU device the training itself waits too.

What to try
    As many workers as cores that are really usable, or fewer: the forecast says how many are enough.

When to leave it
    When the dataset waits for a disk or a network: then more workers than cores are right. Idle workers beside a loop
    that is bound by its model cost memory, not time.
"""

from gpu_doctor.forecast import CPU_BOUND, GOOD_ENOUGH, Forecast, forecast, unqueued_fetch_s
from gpu_doctor.rules.evidence import millis, percent
from gpu_doctor.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "workers", "fetch_wall_s", "fetch_cpu_s", "step_wall_s", "batches_per_step", "data_wait_share")

QUEUED = 1 / 3
"""A worker waits for a core this part of its fetch: where that was not measured, its wall beyond its CPU seconds
(half as long again as those), while all cores are taken."""
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
    if not workers or not wall or cpu is None or not step_s or not batches or workers <= cores:
        return None
    queued = vitals.fetch_queued_s
    alone_s = (unqueued_fetch_s(vitals) or 0.0) if queued is None else max(wall - queued, 0.0) * batches
    need = (cpu * batches + (vitals.consumer_cpu_s or 0.0)) / cores
    taken = need / step_s
    full = taken >= TAKEN or ((vitals.cpu_util_pct or 0.0) >= CPU_UTIL_PCT and taken >= TAKEN_HERE)
    computing = alone_s > 0 and cpu * batches >= CPU_BOUND * alone_s
    waits = queued if queued is not None else max(wall - cpu, 0.0)
    if not full or not computing or waits < QUEUED * wall:
        return None
    best = _fewest(vitals, max(int(cores), 1))
    if best is None:
        return None
    fewer, seen = best
    cost = 1.0 - 1.0 / seen.speedup
    if cost < NAMING_BAR:
        return None
    refusal = vitals.loader.refusals.get("num_workers", "") if vitals.loader is not None else ""
    known = "" if queued is None else f"; it waits {millis(queued)} for a core"
    return Finding(
        rule="too-many-workers",
        headline=f"{workers} workers share {cores:g} cores: {percent(cost)} of the time goes into taking turns.",
        cost_share=cost,
        evidence=(
            f"a batch takes a worker {millis(wall)}, only {millis(cpu)} of it on a core{known}",
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


def _fewest(vitals: Vitals, most: int) -> tuple[int, Forecast] | None:
    """The smallest number of workers, up to one a core, that is forecast to be as fast as the best of them."""
    known = {n: one for n in range(1, most + 1) if (one := forecast(vitals, {"num_workers": n})) is not None}
    if not known:
        return None
    best = max(one.speedup for one in known.values())
    return next((n, one) for n, one in known.items() if one.speedup * GOOD_ENOUGH >= best)

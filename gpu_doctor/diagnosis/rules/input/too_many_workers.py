"""Workers cost more than they save: they outnumber the cores, or handing a batch over costs more than fetching it.

What it means
    Either the fetch computes, the cores are taken, and there are more workers than cores: they wait for a core, not for
    data. Or the data lies in memory: a batch is fetched in less time than it takes to get it out of a worker process,
    so that the loop waits though batches lie ready.

Why it costs you
    Switching between processes, cold caches and memory for every worker; on a CPU device the training itself waits too.
    Each tensor of a batch goes through shared memory and a socket of its own: 0.5 to 1 ms a batch and as much again a
    tensor (a virtual machine of two cores), whatever it holds.

What to try
    As many workers as cores that are really usable, or fewer: the forecast says how many are enough. For data in memory
    none at all: `num_workers=0`.

When to leave it
    When the dataset waits for a disk or a network: then more workers than cores are right. Idle workers beside a loop
    that is bound by its model cost memory, not time.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast import worker_costs
from gpu_doctor.diagnosis.forecast.forecast import GOOD_ENOUGH, forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.forecast.stages import CPU_BOUND, fetched_s, stages, unqueued_fetch_s
from gpu_doctor.diagnosis.rules.evidence import stock_line
from gpu_doctor.diagnosis.rules.prescriptions import on_loader
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("loader", "workers", "fetch_wall_s", "fetch_cpu_s", "step_wall_s", "batches_per_step", "data_wait_share")
EXCLUDES = ("slow-storage", "slow-collate")
"""The same wait: it is for workers, whatever they do, and fewer of them are tried first."""

LIKELY = 0.9
"""A loop without workers is no slower than this at the worst that the forecast allows for."""
SOON = 0.25
"""Batches that are fetched in this part of the wait do not explain it: what is left is handing over, on a machine that
wakes its processes more slowly than any that was measured (a virtual one whose cores are taken away took five times as
long)."""
TORCHS = {
    *("", "RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler", "DistributedSampler"),
    "_InfiniteConstantSampler",
}
"""torch's own samplers, which draw the indices of a batch in microseconds; empty = not told."""
QUEUED = 1 / 3
"""A worker waits for a core this part of its fetch: where that was not measured, its wall beyond its CPU seconds
(half as long again as those), while all cores are taken."""
CPU_UTIL_PCT = 80.0
"""The machine counts as taken from here on (TraceML 0.5)."""
TAKEN = 0.7
"""Loop and workers use this part of all cores themselves: u / (1 - u) of a turn is waited for a server that is busy for
u (M/M/1; Kleinrock, Queueing Systems, 1975), two turns at this, and soon many."""
TAKEN_HERE = 0.5
"""Or this part, while the machine as a whole is taken."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where fewer workers are forecast to be faster: none, or as many as there are cores."""
    return in_the_way(vitals) or _crowded(vitals)


def in_the_way(vitals: Vitals) -> Finding | None:
    """The loop would be done sooner if it fetched by itself: what its workers hand over costs more than it is worth."""
    alone, wait = forecast(vitals, {"num_workers": 0}) if vitals.workers else None, vitals.data_wait_share
    if alone is None or wait is None or alone.low < LIKELY or not vitals.step_wall_s:
        return None  # within what the forecast can tell, they may pay
    edge = vitals.edge_share or 0.0
    if edge >= NAMING_BAR:
        return None  # starting them at each epoch comes first, and what cures that: workers-restart-each-epoch
    cost = min(1.0 - edge - 1.0 / alone.speedup, wait - edge)
    if cost < NAMING_BAR:
        return None
    found = stages(vitals)
    most = found.handed * worker_costs.doubt(vitals)[1] if found is not None else None
    taken_s, alone_s = (wait - edge) * (vitals.host_step_s or 0.0), unqueued_fetch_s(vitals) or 0.0
    slow_to_come = _draws_itself(vitals) or fetched_s(vitals) > SOON * taken_s
    if most is None or (slow_to_come and taken_s > 2.0 * most):
        return None  # it waits for more than the handing over
    theirs = (
        "The worker costs more than it saves"
        if vitals.workers == 1
        else f"{vitals.workers} workers cost more than they save"
    )
    return Finding(
        rule="too-many-workers",
        headline=f"{theirs}: {formatting.share(cost)} of the time is spent handing batches over.",
        cost_share=cost,
        evidence=(
            f"the loop waits {formatting.seconds(taken_s)} a step for batches that take "
            f"{formatting.seconds(alone_s)} to fetch",
            *stock_line(vitals),
        ),
        prescriptions=(on_loader(vitals.loader, "num_workers", 0, "Fetch in the loop itself, without workers", alone),),
    )


def _draws_itself(vitals: Vitals) -> bool:
    """Whether code of the user's may draw the indices: the loop's process does that while it waits, workers or not."""
    return vitals.loader is None or vitals.loader.sampler not in TORCHS


def _crowded(vitals: Vitals) -> Finding | None:
    """Workers outnumber the cores, compute rather than wait, and fewer are forecast to be faster."""
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
    # Fewer start sooner, too: what that saves of the epochs' begins is another rule's, as above.
    cost = 1.0 - 1.0 / seen.speedup - (vitals.edge_share or 0.0) * (1.0 - fewer / workers) / 2.0
    known = "" if queued is None else f"; it waits {formatting.seconds(queued)} for a core"
    return Finding(
        rule="too-many-workers",
        headline=f"{workers} workers share {formatting.cores(cores)}: {formatting.share(cost)} of the time is lost as "
        "they take turns.",
        cost_share=cost,
        evidence=(
            f"a batch takes a worker {formatting.seconds(wall)}, only {formatting.seconds(cpu)} of it on a core{known}",
            f"fetching and training need {formatting.seconds(need)} of all cores in a step of "
            f"{formatting.seconds(step_s)}",
        ),
        prescriptions=(
            on_loader(vitals.loader, "num_workers", fewer, f"Load with {formatting.count(fewer, 'worker')}", seen),
        ),
    )


def _fewest(vitals: Vitals, most: int) -> tuple[int, Forecast] | None:
    """The smallest number of workers, up to one a core, that is forecast to be as fast as the best of them."""
    known = {n: one for n in range(1, most + 1) if (one := forecast(vitals, {"num_workers": n})) is not None}
    if not known:
        return None
    best = max(one.speedup for one in known.values())
    return next((n, one) for n, one in known.items() if one.speedup * GOOD_ENOUGH >= best)

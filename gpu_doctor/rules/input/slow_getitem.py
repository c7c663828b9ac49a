"""Fetching a sample computes so much that no number of workers keeps up.

What it means
    The CPU seconds of `__getitem__` exceed what the usable cores can give: even with every core fetching, a batch takes
    longer to make than to train on.

Why it costs you
    The device waits for the CPU, step after step, and more workers only take the cores from each other.

What to try
    Do less per sample: decode and resize once and store the result, cache what fits into memory, vectorise over the
    batch (`__getitems__`), move augmentation to the device. The hot lines say where to begin.

When to leave it
    When the work per sample is what you want to measure, or when a machine with more cores is the cheaper cure.
"""

from gpu_doctor.forecast import best_workers
from gpu_doctor.rules.evidence import hot_lines, millis, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "exposed_wait_share", "fetch_wall_s", "fetch_cpu_s", "consumer_s", "step_wall_s", "batches_per_step")
EXCLUDES = ("slow-collate",)

WAIT_SHARE = 0.05
"""torch-tb-profiler's bar for data loading."""
CPU_BOUND = 0.5
"""A fetch that spends at least half of its wall seconds on a core computes; below, it mostly waits."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where the cores are the bound that is left after the best number of workers."""
    wait, wall, cpu = vitals.exposed_wait_share, vitals.fetch_wall_s, vitals.fetch_cpu_s
    consumer, step_s, batches = vitals.consumer_s, vitals.step_wall_s, vitals.batches_per_step
    if wait is None or not wall or cpu is None or consumer is None or not step_s or not batches:
        return None
    saturated = cpu * batches / vitals.usable_cores >= 0.7 * step_s
    if wait < WAIT_SHARE or (cpu < CPU_BOUND * wall and not saturated):
        return None
    collate = (vitals.collate_s or 0.0) / wall
    best = best_workers(vitals)
    left_s = min(best[1].step_s if best is not None else step_s, step_s)
    own_s = cpu * batches / vitals.usable_cores
    # What is left of the step beyond the training, once workers are as many as help; never more than the wait.
    cost = min(max(min(left_s, max(own_s, consumer)) - consumer, 0.0) / step_s, wait)
    if own_s <= consumer or collate >= 0.5:
        return None
    per_sample = cpu / (vitals.samples_per_step / batches) if vitals.samples_per_step else None
    return Finding(
        rule="slow-getitem",
        headline=f"Fetching computes too much: {percent(cost)} of the time stays a wait, with however many workers.",
        cost_share=cost,
        evidence=(
            f"a batch takes {millis(cpu)} of CPU time"
            + (f" ({millis(per_sample)} a sample)" if per_sample is not None else "")
            + f", {millis(own_s)} on {vitals.usable_cores:g} cores together; training on it takes {millis(consumer)}",
            *hot_lines(vitals, ("data_wait",)),
        ),
        prescriptions=(
            Prescription(
                text="Make a sample cheaper: preprocess offline, cache, vectorise, or transform on the device",
                safety=Safety.BY_HAND,
                code="def __getitems__(self, indices): ...  # one vectorised call a batch",
                predicted_speedup=None,
            ),
        ),
    )

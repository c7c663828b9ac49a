"""torch computes with more threads than there are free cores, so its threads wait for each other.

What it means
    torch splits each larger operation over its threads and waits for the last of them. There can be more threads than
    cores because `torch.set_num_threads` set too many, because a container grants fewer cores than the machine has, or
    because loader workers compute at the same time. Then some thread always waits for a core.

Why it costs you
    The other threads spin or sleep until the last one is done. The cost is a bound: the part of the computing time for
    which a thread has no core if all threads run all the time.

What to try
    Use as many threads as cores, minus one for every worker that computes. `OMP_NUM_THREADS`, set before Python starts,
    does the same. Small models are often fastest with one thread.

In code
    # sick
    torch.set_num_threads(16)  # in a container with 4 cores
    # cured
    torch.set_num_threads(4)

When to leave it
    Leave it if the model trains on a GPU: these threads then have little to do.
"""

from __future__ import annotations

import math
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import phases_take
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("step_wall_s", "backward_share", "torch_threads")

FULL_PCT: Final = 85.0
"""CPU use, in per cent, from which on workers take cores from torch's threads if there are enough cores for those."""
HALF_A_CORE: Final = 0.5
"""Fewest busy cores for workers to count; with less, they compute while torch's threads pause."""


def check(vitals: Vitals) -> Finding | None:
    """Reports a CPU device on which torch's threads and the busy workers outnumber the usable cores."""
    threads, cores = vitals.torch_threads, max(vitals.usable_cores, 1.0)
    if vitals.on_gpu or not vitals.setup.device.startswith("cpu") or threads is None or threads < 2:
        return None
    busy = _busy_workers(vitals)
    crowded = busy >= HALF_A_CORE and threads + busy > cores and (vitals.cpu_util_pct or 0.0) >= FULL_PCT
    if threads <= math.ceil(cores) and not crowded:
        return None
    cost = vitals.computing_share * max(1.0 - cores / (threads + busy), 0.0)
    fewer = max(1, min(threads - 1, int(cores) - round(busy)))
    others = f" and loader workers keep {formatting.cores(busy)} busy" if busy >= HALF_A_CORE else ""
    util = vitals.cpu_util_pct
    return Finding(
        rule="cpu-oversubscription",
        kind="at-most",
        headline=f"torch computes with {threads} threads{others}, but only {formatting.cores(cores)} can be used (at "
        f"most {formatting.share(cost)} to gain).",
        cost_share=cost,
        evidence=(
            f"{phases_take(vitals)} {formatting.share(vitals.computing_share)} of the time",
            *((f"the CPU is {formatting.percent(util)} busy",) if util is not None else ()),
        ),
        prescriptions=(
            Prescription(
                text=f"Compute with {fewer} thread{'s' if fewer > 1 else ''}",
                safety=Safety.SAFE,
                settings={"threads": fewer},
                code=f"torch.set_num_threads({fewer})",
            ),
        ),
    )


def _busy_workers(vitals: Vitals) -> float:
    """Number of cores that the loader's workers keep busy: their CPU seconds over the wall-clock of a step."""
    if not vitals.workers or not vitals.step_wall_s:
        return 0.0
    return min(vitals.fetches_cpu_s / vitals.step_wall_s, float(vitals.workers))

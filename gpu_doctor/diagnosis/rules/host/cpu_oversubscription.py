"""torch computes with more threads than there are free cores, so its threads wait for each other.

What it means
    Each larger operation is split over torch's threads and ends when the last of them has finished. Where more threads
    want to run than there are cores, because torch was told so, because a container grants fewer cores than the
    machine has, or because loader workers compute at the same time, one of them always stands in the queue.

Why it costs you
    The others spin or sleep until it comes. On 2 cores, 4 threads took 1.2 to 2.7 times as long as 2, for models from
    3 small layers to 4 of 1024; 16 threads took 2.4 to 11 times as long, and an LSTM 100 times.

What to try
    As many threads as cores (`torch.set_num_threads`, or `OMP_NUM_THREADS` before the start), less one for every
    worker that computes. Small models are often fastest with one thread.

When to leave it
    When the model trains on a GPU: then these threads have next to nothing to do.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import taking
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("step_wall_s", "backward_share", "torch_threads")

LEAST_SLOWER = 1.2
TWICE = 2.0
"""With twice as many threads as cores a loop took 1.2 times as long at least, with 8 times as many 2.4 times (see Why
it costs you: the least of five models on 2 cores, torch 2.13, quiet machine): 1.2 times the root of the ratio/2. Of one
machine: the price may be off by as much as another one's threads wait otherwise; what fewer gain a trial shows."""
LEAST_LOST = 0.2
"""Where workers are in the way on a full machine, one of torch's threads stands in the queue all the time: priced as
twice as many threads as cores, whatever the ratio (rounded up from 1.2 times)."""
FULL_PCT = 85.0
"""With no more threads than cores, workers take cores from them only where the CPU is full (catalogue: 80 to 90 %)."""
HALF_A_CORE = 0.5
"""Workers that compute less than this have their work done in between."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a CPU device where threads and computing workers are more than the usable cores."""
    threads, cores = vitals.torch_threads, vitals.usable_cores
    if vitals.on_gpu or not vitals.setup.device.startswith("cpu") or threads is None or threads < 2:
        return None
    busy = _busy_workers(vitals)
    too_many = threads > math.ceil(cores)
    crowded = busy >= HALF_A_CORE and threads + busy > cores and (vitals.cpu_util_pct or 0.0) >= FULL_PCT
    if not too_many and not crowded:
        return None
    computing = vitals.computing_share
    lost = 1.0 - 1.0 / least_slower((threads + busy) / max(cores, 1.0))
    lost = max(lost, LEAST_LOST) if crowded else lost
    fewer = max(1, min(threads - 1, int(cores) - round(busy)))
    beside = f" beside loader workers that keep {formatting.cores(busy)} busy" if busy >= HALF_A_CORE else ""
    return Finding(
        rule="cpu-oversubscription",
        headline=(
            f"torch computes with {threads} threads{beside} where {formatting.cores(cores)} can be used: at least "
            f"{formatting.share(lost)} of the computing time is lost."
        ),
        cost_share=lost * computing,
        evidence=(
            f"{taking(vitals)} {formatting.share(computing)} of the time",
            *(
                (f"the CPU is {formatting.percent(vitals.cpu_util_pct)} busy",)
                if vitals.cpu_util_pct is not None
                else ()
            ),
        ),
        prescriptions=(
            Prescription(
                text=f"Compute with {fewer} thread{'s' if fewer > 1 else ''}; a trial shows what that gains",
                safety=Safety.SAFE,
                settings={"threads": fewer},
                code=f"torch.set_num_threads({fewer})",
            ),
        ),
    )


def least_slower(ratio: float) -> float:
    """How many times as long computing takes at least, with so many computing threads a core."""
    return max(LEAST_SLOWER * math.sqrt(ratio / TWICE), 1.0)


def _busy_workers(vitals: Vitals) -> float:
    """Cores that the loader's workers keep busy: their CPU seconds a step over its wall."""
    if not vitals.workers or not vitals.step_wall_s:
        return 0.0
    return min(vitals.fetches_cpu_s / vitals.step_wall_s, float(vitals.workers))

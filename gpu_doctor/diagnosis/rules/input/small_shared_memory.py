"""The shared memory for the workers' batches is smaller than the batches that they prefetch.

What it means
    A worker puts each batch's tensors into /dev/shm. Up to `num_workers * prefetch_factor` batches are there at once.
    In a container, /dev/shm often has only 64 MB (Docker's default).

Why it costs you
    When /dev/shm is full, a bus error kills the worker and the loop ends. The messages are "unable to write to file
    </torch_...>" or "insufficient shared memory". It happens once loading has been faster than training for a while.

What to try
    Give the container more shared memory: `docker run --shm-size=8g` or `--ipc=host`; in Kubernetes, mount an
    `emptyDir` with `medium: Memory` at /dev/shm. Or use fewer workers, a smaller `prefetch_factor`, or smaller batches
    (uint8 instead of float32).

In code
    $ df -h /dev/shm
    $ docker run --shm-size=8g IMAGE

When to leave it
    Leave it if torch's sharing strategy is `file_system` and the disk is large.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.prescriptions import on_loader
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.distributed import PREFETCH, workers_in_shm
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording import LoaderSetup

NEEDS = ("outcome",)

ROOM = 2.0
"""Factor on the needed bytes for the size to advise."""
_FULL = re.compile(
    r"unable to (?:write to|mmap|resize|open|allocate).*torch_|[Bb]us error|shared memory \(shm\)|insufficient shared"
)


def check(vitals: Vitals) -> Finding | None:
    """Reports a run that failed for lack of shared memory, or prefetched batches that would not fit into it."""
    loader, free = _loader(vitals), vitals.shm_free_bytes
    if loader is None or not loader.num_workers:
        return None
    in_flight = loader.num_workers * (loader.prefetch_factor or PREFETCH)
    need = in_flight * vitals.batch_bytes if vitals.batch_bytes else None
    died = vitals.outcome == "failed" and bool(_FULL.search(vitals.reason))
    if not died and (need is None or free is None or need <= free):
        return None
    figures = [f"{formatting.count(loader.num_workers, 'worker')} x {loader.prefetch_factor or PREFETCH} batches ahead"]
    if vitals.batch_bytes and need:
        figures[0] += f" x {formatting.size(vitals.batch_bytes)} = {formatting.size(need)}"
    if free is not None:
        figures.append(f"{formatting.size(free)} of /dev/shm was free when the run began")
    return Finding(
        rule="small-shared-memory",
        headline="The workers ran out of shared memory."
        if died
        else f"The workers may fill the shared memory: {formatting.size(need or 0.0)} of batches in flight, "
        f"{formatting.size(free or 0.0)} free.",
        cost_share=None,
        kind="hint",
        evidence=(vitals.reason, *figures) if died else tuple(figures),
        prescriptions=_cures(vitals, loader, need, free),
        risk="A worker that finds no room there is killed, and the loop ends with a bus error.",
    )


def _loader(vitals: Vitals) -> LoaderSetup | None:
    """Returns the training loader; if a run failed before it was known, the first loader with workers."""
    if vitals.loader is not None:
        return vitals.loader
    return next((loader for loader in vitals.setup.loaders if loader.num_workers), None)


def _cures(vitals: Vitals, loader: LoaderSetup, need: float | None, free: float | None) -> tuple[Prescription, ...]:
    """Returns the prescriptions: more shared memory, and fewer workers if some would fit.

    Args:
        vitals: vitals of the run.
        loader: the loader whose workers need the memory.
        need: bytes of shared memory that the prefetched batches need; None = not known.
        free: free bytes of /dev/shm; None = not known.
    """
    size = f"{max(1, round(ROOM * need / 1e9))}g" if need else "8g"
    more = Prescription(
        text="Give the container more shared memory",
        safety=Safety.BY_HAND,
        code=f"docker run --shm-size={size} ...  # or --ipc=host",
    )
    fits = workers_in_shm(free, vitals.batch_bytes, loader.prefetch_factor)
    if not 0 < fits < loader.num_workers:
        return (more,)
    text = f"Or load with the {formatting.count(fits, 'worker')} whose batches fit"
    return (more, on_loader(loader, "num_workers", int(fits), text))

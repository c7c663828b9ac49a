"""Fetching waits for the storage: the data comes from a disk or a network drive, not from memory.

What it means
    A fetch takes far longer than it computes, and meanwhile bytes come from the storage itself: the files are not in
    the page cache, so every read waits for a disk or a network drive.

Why it costs you
    A read of a cold file takes 0.1 ms from an NVMe drive, 1 to 20 ms from a disk or a network drive, whatever the size
    of the sample. One process that reads one file after the other mostly waits.

What to try
    More workers than cores: they wait at the same time. Then copy the data to a local disk once, or store many samples
    in few large files (shards, an array to be mapped, a database) and read them in order. What fits into memory is
    fast from the second epoch on by itself.

When to leave it
    In the first epoch over data that fits into memory: the next one reads from the page cache. When the storage
    delivers all it can (the evidence says how much that is): more workers then only share it.
"""

from dataclasses import replace

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.stages import SLOWEST_BYTES_PER_S
from gpu_doctor.diagnosis.rules.evidence import fetch_lines, who
from gpu_doctor.diagnosis.rules.prescriptions import more_workers, on_loader
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (
    *("loader", "workers", "exposed_wait_share", "fetch_wall_s", "fetch_cpu_s", "fetch_stored_bytes"),
    *("step_wall_s", "batches_per_step"),
)

WAITING = 0.5
"""The fetch waits for something else than a core for at least half of its time."""
SHARDS = Prescription(
    text="Copy the data to a local disk, or pack many samples into few large files",
    safety=Safety.BY_HAND,
    code="shutil.copytree(network_folder, local_folder)  # once, before the loop\n"
    "numpy.save('images.npy', images); images = numpy.load('images.npy', mmap_mode='r')  # one large file",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where an exposed fetch waits rather than computes, while bytes arrive that explain the waiting.

    Where workers pay, loader-without-workers or too-few-workers stand for the same wait: they say what this rule knows.
    """
    wall, waiting_s = vitals.fetch_wall_s, stored_s(vitals)
    if not wall or not waiting_s:
        return None
    cost = vitals.steady_wait_share * min(waiting_s / wall, 1.0)
    return Finding(
        rule="slow-storage",
        headline=f"The {who(vitals)} waits for the storage {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(*storage_lines(vitals), *fetch_lines(vitals)),
        prescriptions=(*_more_workers(vitals), SHARDS),
    )


def stored_s(vitals: Vitals) -> float:
    """Seconds of a fetch in which it waits for the storage; 0 where it does not, or nobody counted its bytes."""
    wall, cpu, stored = vitals.fetch_wall_s, vitals.fetch_cpu_s, vitals.fetch_stored_bytes
    if not wall or cpu is None or stored is None:
        return 0.0
    waiting_s = wall - cpu - (vitals.fetch_queued_s or 0.0)
    if vitals.fetch_stored_share is not None:  # the fetches that read nothing from it wait for something else
        waiting_s = min(waiting_s, vitals.fetch_stored_share * wall)
    return waiting_s if waiting_s >= WAITING * wall and stored >= SLOWEST_BYTES_PER_S * waiting_s else 0.0


def storage_lines(vitals: Vitals) -> tuple[str, ...]:
    """What the storage delivers, as evidence; empty where fetches do not wait for it."""
    waiting_s, step_s, batches = stored_s(vitals), vitals.step_wall_s, vitals.batches_per_step
    if not waiting_s or not step_s or not batches:
        return ()
    stored = vitals.fetch_stored_bytes or 0.0
    return (
        f"a fetch waits {formatting.seconds(waiting_s)} of its {formatting.seconds(vitals.fetch_wall_s or 0.0)} for "
        f"the storage: {formatting.size(stored)} of the {formatting.size(max(vitals.fetch_read_bytes or 0.0, stored))} "
        "that it reads come from there, not from memory",
        f"the storage delivers {formatting.bandwidth(stored * batches / step_s)} to this loop",
    )


def _more_workers(vitals: Vitals) -> tuple[Prescription, ...]:
    """Workers wait at the same time, as far as the storage serves several at once: which no recording can tell."""
    best = more_workers(vitals)
    if best is None:
        return ()
    count, seen = best
    text = f"Load with {formatting.count(count, 'worker')}, which can wait at the same time"
    return (on_loader(vitals.loader, "num_workers", count, text, replace(seen, low=min(seen.low, 1.0))),)

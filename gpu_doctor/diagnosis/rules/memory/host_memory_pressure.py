"""The host's memory is nearly full, the process is swapped out, or the system has killed a process.

What it means
    Hardly any memory is available within the container's limit, or pages of the training process are in swap and are
    read back while it runs, or the system has killed a process to free memory.

Why it costs you
    It is a risk and has no price. Swapping turns memory accesses into disk accesses. When nothing is left, the system
    kills a process: often a loader worker ("killed by signal: Killed"), or the whole kernel without a message.

What to try
    Use fewer workers if they hold much of the memory: each copies the pages that it writes to, and Python writes to an
    object to count its references. Use NumPy arrays instead of lists of Python objects, memory-mapped files, or a
    smaller `prefetch_factor`.

In code
    # sick
    data = numpy.load("data.npy")
    # cured
    data = numpy.load("data.npy", mmap_mode="r")  # all processes share its pages

When to leave it
    Leave it if the memory belongs to another program that will end soon.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import least_available
from gpu_doctor.diagnosis.rules.prescriptions import fewer_workers
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("outcome", "host_memory_available_bytes", "host_memory_total_bytes")

LOW_SHARE = 0.05
"""Part of the host's memory below which available memory is low; earlyoom, which kills before the kernel has to, starts
to kill at 10 %."""
LOW_BYTES = float(4 << 30)
"""Most available bytes that count as low: on large machines 5 % are plenty."""
SWAP_IN_BYTES_PER_S = 1e6
"""Smallest rate of reading back from swap that counts; an old page now and then is less."""
WORKERS_SHARE = 0.2
"""Part of the memory in use that workers must hold for fewer workers to make a difference."""

_WORKER_GONE = re.compile(r"DataLoader worker .*(?:killed by signal: (Killed)|exited unexpectedly)")
"""Torch's messages on a worker that is gone; the second does not say why."""


def check(vitals: Vitals) -> Finding | None:
    """Reports little available memory, a training process that is swapped and read back, or a killed process."""
    lowest, total = vitals.host_memory_available_bytes, vitals.host_memory_total_bytes
    if lowest is None or not total:
        return None
    kill_evidence = _killed(vitals)
    low = lowest < min(LOW_SHARE * total, LOW_BYTES)
    swapping = bool(vitals.process_swapped_bytes) and (vitals.swap_in_bytes_per_s or 0.0) >= SWAP_IN_BYTES_PER_S
    if not low and not swapping and not kill_evidence:
        return None
    evidence = [*kill_evidence, *least_available(vitals)]
    if swapping:
        swapped, rate = vitals.process_swapped_bytes or 0.0, vitals.swap_in_bytes_per_s or 0.0
        evidence.append(
            f"{formatting.size(swapped)} of the process is swapped out; {formatting.bandwidth(rate)} is read back"
        )
    if vitals.process_rss_bytes is not None:
        evidence.append(f"the training process uses {formatting.size(vitals.process_rss_bytes)}")
    workers_bytes = _workers_bytes(vitals, lowest, total)
    if workers_bytes:
        evidence.append(
            f"its {formatting.count(vitals.workers, 'worker')} may use up to {formatting.size(workers_bytes)} of their "
            "own"
        )
    headline = "The process's memory is swapped out." if swapping else "The host's memory is nearly used up."
    headline = headline.replace(".", f": {formatting.size(lowest)} of {formatting.size(total)} is left.")
    if kill_evidence:  # the readings say less, as memory may fill up between two of them
        headline = f"The memory of {formatting.size(total)} ran out: the system killed a process."
    return Finding(
        rule="host-memory-pressure",
        headline=headline,
        cost_share=None,
        kind="hint",
        evidence=tuple(evidence),
        prescriptions=tuple(_cures(vitals, workers_bytes, total - lowest)),
        risk="When nothing is left, the system kills a worker or the kernel.",
    )


def _killed(vitals: Vitals) -> list[str]:
    """Says that the system killed a process for lack of memory, as evidence; empty if it did not.

    The kernel's count decides; if it was not read, torch's message does. A worker that the user kills dies with the
    same message, but the kernel does not count it.
    """
    message = _WORKER_GONE.search(vitals.reason) if vitals.outcome == "failed" else None
    counted = vitals.oom_kills
    if counted == 0 or (counted is None and (message is None or message[1] is None)):
        return []
    evidence = [vitals.reason] if message else []
    if counted is not None:
        processes = "a process" if counted == 1 else f"{counted} processes"
        evidence.append(f"the operating system killed {processes} to free memory")
    return evidence


def _workers_bytes(vitals: Vitals, available: float, total: float) -> float:
    """Returns the most bytes that the workers can hold of their own; 0 without workers, or if it was not measured.

    Shared pages count in each worker's reading, so the machine's memory in use is a second bound.

    Args:
        vitals: vitals of the run.
        available: lowest reading of the host's available memory, in bytes.
        total: the host's memory, in bytes.
    """
    if not vitals.workers or vitals.workers_rss_bytes is None:
        return 0.0
    return max(min(vitals.workers_rss_bytes, total - available - (vitals.process_rss_bytes or 0.0)), 0.0)


def _cures(vitals: Vitals, workers_bytes: float, used: float) -> list[Prescription]:
    """Returns the prescriptions: fewer workers, if they hold much of the `used` bytes, and memory-mapped data."""
    workers = vitals.workers or 0
    cures: list[Prescription] = []
    if workers >= 2 and workers_bytes >= WORKERS_SHARE * used:
        cures.append(fewer_workers(vitals.loader, workers // 2))
    text = "Read the data from a memory-mapped file, whose pages all processes share"
    return [*cures, Prescription(text, Safety.BY_HAND, code='data = np.load("data.npy", mmap_mode="r")')]

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
"""Of the host's memory; earlyoom, which kills before the kernel has to, begins to at 10 %."""
LOW_BYTES = float(4 << 30)
"""On large machines 5 % are plenty: never more than so much."""
SWAP_IN_BYTES_PER_S = 1e6
"""Read back from swap while the loop ran: a worn page now and then is less."""
WORKERS_SHARE = 0.2
"""Of the memory in use: from here on fewer workers make a difference."""

_SAID = re.compile(r"DataLoader worker .*(?:killed by signal: (Killed)|exited unexpectedly)")
"""What torch says of a worker that is gone; the second way tells not why."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where little is left, where the process itself is swapped and read back, or where one was killed."""
    left, total = vitals.host_memory_available_bytes, vitals.host_memory_total_bytes
    if left is None or not total:
        return None
    killed = _killed(vitals)
    low = left < min(LOW_SHARE * total, LOW_BYTES)
    swapping = bool(vitals.process_swapped_bytes) and (vitals.swap_in_bytes_per_s or 0.0) >= SWAP_IN_BYTES_PER_S
    if not low and not swapping and not killed:
        return None
    evidence = [*killed, *least_available(vitals)]
    if swapping:
        swapped, rate = vitals.process_swapped_bytes or 0.0, vitals.swap_in_bytes_per_s or 0.0
        evidence.append(
            f"{formatting.size(swapped)} of the process is swapped out; {formatting.bandwidth(rate)} is read back"
        )
    if vitals.process_rss_bytes is not None:
        evidence.append(f"the training process uses {formatting.size(vitals.process_rss_bytes)}")
    theirs = _workers_bytes(vitals, left, total)
    if theirs:
        evidence.append(
            f"its {formatting.count(vitals.workers, 'worker')} may use up to {formatting.size(theirs)} of their own"
        )
    headline = "The process's memory is swapped out." if swapping else "The host's memory is nearly used up."
    headline = headline.replace(".", f": {formatting.size(left)} of {formatting.size(total)} is left.")
    if killed:  # what was left when a reading was taken tells less: memory may fill between two of them
        headline = f"The memory of {formatting.size(total)} ran out: the system killed a process."
    return Finding(
        rule="host-memory-pressure",
        headline=headline,
        cost_share=None,
        kind="hint",
        evidence=tuple(evidence),
        prescriptions=tuple(_cures(vitals, theirs, total - left)),
        risk="When nothing is left, the system kills a worker or the kernel.",
    )


def _killed(vitals: Vitals) -> list[str]:
    """How it is known that the system killed a process for want of memory: by the kernel's count, else by torch's word.

    A worker that is killed by hand dies in the same words, but where the kernel counts, it has not counted that one.
    """
    said = _SAID.search(vitals.reason) if vitals.outcome == "failed" else None
    counted = vitals.oom_kills
    if counted == 0 or (counted is None and (said is None or said[1] is None)):
        return []
    told = [vitals.reason] if said else []
    if counted is not None:
        processes = "a process" if counted == 1 else f"{counted} processes"
        told.append(f"the operating system killed {processes} to free memory")
    return told


def _workers_bytes(vitals: Vitals, left: float, total: float) -> float:
    """What the workers can hold of their own: shared pages count in each, so the machine's use is an upper bound."""
    if not vitals.workers or vitals.workers_rss_bytes is None:
        return 0.0
    return max(min(vitals.workers_rss_bytes, total - left - (vitals.process_rss_bytes or 0.0)), 0.0)


def _cures(vitals: Vitals, theirs: float, used: float) -> list[Prescription]:
    workers = vitals.workers or 0
    cures: list[Prescription] = []
    if workers >= 2 and theirs >= WORKERS_SHARE * used:
        cures.append(fewer_workers(vitals.loader, workers // 2))
    text = "Read the data from a memory-mapped file, whose pages all processes share"
    return [*cures, Prescription(text, Safety.BY_HAND, code='data = np.load("data.npy", mmap_mode="r")')]

"""Judges the host in a check-up: cores, /dev/shm, start method of workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.checkup.facts import Facts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, WRONG, CheckLine

BATCH_BYTES: Final = 256 * 3 * 224 * 224 * 4
"""Size of a batch of 256 float32 images of 224 x 224, 147 MiB: the measure for /dev/shm."""
SHM_WRONG_BYTES: Final = BATCH_BYTES
"""Free space below which not one such batch fits (Docker's default is 64 MiB)."""
SHM_LOOK_BYTES: Final = 8 * BATCH_BYTES
"""Free space for 4 workers with 2 batches each, which is DataLoader's default prefetch_factor."""


def host_lines(facts: Facts) -> Iterator[CheckLine]:
    """Yields all lines about the host."""
    yield cores(facts)
    yield shared_memory(facts)
    yield start_method(facts)


def cores(facts: Facts) -> CheckLine:
    """Returns the line that compares the usable cores with the machine's cores."""
    usable, every = facts.usable_cores, facts.os_cores
    if usable < every:
        why = "CPU affinity" if facts.affinity_cores <= usable else "the container's CPU quota"
        found = f"{formatting.average(usable)} of the machine's {every} cores are usable: {why} limits them."
        count = f"os.cpu_count() returns {every} here"
        to_do = f"Choose threads and loader workers for {formatting.cores(usable)}: {count}."
        return CheckLine("CPU cores", LOOK, found, to_do)
    if usable <= 1:
        found = "1 core: loader workers and the training loop share it."
        return CheckLine("CPU cores", LOOK, found, "Workers help only if samples wait for disk or network.")
    if facts.physical_cores and facts.physical_cores < usable:
        behind = "1 core" if facts.physical_cores == 1 else f"{facts.physical_cores} cores"
        found = f"All {formatting.average(usable)} logical cores are usable; they are the hardware threads of {behind}."
        if facts.physical_cores > 1:
            return CheckLine("CPU cores", OK, found)
        to_do = "Two threads of one core do about 1.25 times the work of one: loader workers gain no more."
        return CheckLine("CPU cores", LOOK, found, to_do)
    return CheckLine("CPU cores", OK, f"All {formatting.average(usable)} cores of the machine are usable.")


def shared_memory(facts: Facts) -> CheckLine:
    """Returns the line about free space in /dev/shm, through which workers pass their batches."""
    if facts.shm is None:
        return CheckLine("/dev/shm", UNKNOWN, "This system has no /dev/shm that can be read.")
    free, total = facts.shm
    found = f"{formatting.size(free)} of {formatting.size(total)} free; workers pass their batches through it."
    batch = f"a batch of 256 float32 images of 224 x 224 takes {formatting.size(BATCH_BYTES)}"
    yardstick = f"{batch}, and each worker keeps 2 ready"
    to_do = f"Start the container with --shm-size=8g (or --ipc=host): {yardstick}."
    if free < SHM_WRONG_BYTES:
        return CheckLine("/dev/shm", WRONG, found, to_do)
    if free < SHM_LOOK_BYTES:
        return CheckLine("/dev/shm", LOOK, found, to_do)
    return CheckLine("/dev/shm", OK, found)


def start_method(facts: Facts) -> CheckLine:
    """Returns the line about the method by which worker processes are started, and its effect in a notebook."""
    if facts.start_method == "fork":
        return CheckLine("worker start", OK, "Workers start by fork: datasets defined in the notebook work in them.")
    return CheckLine(
        "worker start",
        LOOK,
        f"Workers start by {facts.start_method}: a Dataset, collate_fn or lambda defined in the notebook cannot be "
        "sent to them.",
        "Put the Dataset and the collate_fn into a .py file and import them, before you set num_workers above 0.",
    )

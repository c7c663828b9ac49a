"""What a check-up says of the host: cores, threads, /dev/shm, start method, RAM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.checkup.facts import Facts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, WRONG, CheckLine

BATCH_BYTES: Final = 256 * 3 * 224 * 224 * 4
"""A batch of 256 float32 images of 224 x 224, 147 MiB: the yardstick for /dev/shm."""
SHM_WRONG_BYTES: Final = BATCH_BYTES
"""Below it not one such batch fits (Docker's default is 64 MiB)."""
SHM_LOOK_BYTES: Final = 8 * BATCH_BYTES
"""4 workers with 2 batches each, DataLoader's default prefetch_factor."""
THREADS_PER_CORE: Final = 1.25
RAM_LOOK_SHARE: Final = 0.10
RAM_WRONG_BYTES: Final = 1 << 30


def host_lines(facts: Facts) -> Iterator[CheckLine]:
    """All lines on the host."""
    yield cores(facts)
    threads = torch_threads(facts)
    if threads is not None:
        yield threads
    yield shared_memory(facts)
    yield start_method(facts)
    yield ram(facts)


def cores(facts: Facts) -> CheckLine:
    """Usable cores against the machine's."""
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


def torch_threads(facts: Facts) -> CheckLine | None:
    """Threads of torch's CPU operations against usable cores; None without torch."""
    if facts.torch is None or facts.torch.threads is None:
        return None
    threads, usable = facts.torch.threads, facts.usable_cores
    found = f"torch computes on {threads} thread{'s' * (threads != 1)}; {formatting.average(usable)} cores are usable."
    if threads > max(usable, 1) * THREADS_PER_CORE:
        to_do = f"Use torch.set_num_threads({max(int(usable), 1)}): more threads than cores take turns and wait."
        return CheckLine("torch threads", LOOK, found, to_do)
    if not facts.cards and threads == 1 and usable >= 2:
        said = facts.environment.get("OMP_NUM_THREADS")
        found += f" OMP_NUM_THREADS={said:.40} is set." if said is not None else ""
        to_do = f"If nothing else needs them, use torch.set_num_threads({int(usable)}); see OMP_NUM_THREADS."
        return CheckLine("torch threads", LOOK, found, to_do)
    return CheckLine("torch threads", OK, found)


def shared_memory(facts: Facts) -> CheckLine:
    """Room in /dev/shm for the batches that workers hand over."""
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
    """How worker processes are started, and what that means for a notebook."""
    if facts.start_method == "fork":
        return CheckLine("worker start", OK, "Workers start by fork: datasets defined in the notebook work in them.")
    return CheckLine(
        "worker start",
        LOOK,
        f"Workers start by {facts.start_method}: a Dataset, collate_fn or lambda defined in the notebook cannot be "
        "sent to them.",
        "Put the Dataset and the collate_fn into a .py file and import them, before you set num_workers above 0.",
    )


def ram(facts: Facts) -> CheckLine:
    """Host memory, within the container's limit."""
    available, total = facts.ram
    found = f"{formatting.size(available)} of {formatting.size(total)} available."
    to_do = "Free memory first (shut down other kernels): every worker needs its own."
    if available < RAM_WRONG_BYTES:
        return CheckLine("RAM", WRONG, found, to_do)
    if available < RAM_LOOK_SHARE * total:
        return CheckLine("RAM", LOOK, found, to_do)
    return CheckLine("RAM", OK, found)

"""What a check-up says of environment variables that slow training down: only those that are set, and set oddly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from gpu_doctor.machine.checkup.facts import Facts
from gpu_doctor.machine.checkup.host import THREADS_PER_CORE
from gpu_doctor.machine.checkup.result import LOOK, WRONG, CheckLine

THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SWITCHES: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "CUDA_LAUNCH_BLOCKING": (("1",), "the CPU waits for every GPU kernel, which is meant for debugging"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": (
        ("1",),
        "torch gets the memory of every tensor from the driver, which is slow",
    ),
    "PYTORCH_NO_HIP_MEMORY_CACHING": (("1",), "torch gets the memory of every tensor from the driver, which is slow"),
    "NVIDIA_TF32_OVERRIDE": (("0",), "TF32 is off whatever the code says: float32 products run without tensor cores"),
    "TORCH_COMPILE_DISABLE": (("1",), "torch.compile does nothing"),
    "TORCHDYNAMO_DISABLE": (("1",), "torch.compile does nothing"),
}
"""Variable -> the values that cost time, and what they do (CUDA's and torch's pages on environment variables)."""
READ: Final = (*THREADS, *SWITCHES)
"""All that is looked at."""


def environment_lines(facts: Facts) -> Iterator[CheckLine]:
    """A line for each variable that is set oddly, none where all is well."""
    for name in THREADS:
        line = _threads(name, facts)
        if line is not None:
            yield line
    for name, (values, does) in SWITCHES.items():
        said = facts.environment.get(name, "").strip()
        if said in values:
            to_do = f"Unset {name} and restart the kernel, unless that is what you want."
            yield CheckLine(name, LOOK, f"{name}={said}: {does}.", to_do)


def _threads(name: str, facts: Facts) -> CheckLine | None:
    """A number of threads that is none, or more than the cores; None where it is in order."""
    said = facts.environment.get(name)
    if said is None:
        return None
    cores = max(int(facts.usable_cores), 1)
    to_do = f"Set {name}={cores} before the kernel starts, or unset it."
    numbers = said.split(",")  # OpenMP takes one for each level of nesting; the first is the outermost
    if not all(one.strip().isdigit() and int(one) > 0 for one in numbers):
        return CheckLine(
            name, WRONG, f"{name}={said!r:.40} is not a number of threads: each library reads it differently.", to_do
        )
    threads = int(numbers[0])
    if threads > max(facts.usable_cores, 1.0) * THREADS_PER_CORE:
        found = (
            f"{name}={threads} on {cores} usable core{'s' * (cores != 1)}: threads take turns and wait, in workers too."
        )
        return CheckLine(name, LOOK, found, to_do)
    return None

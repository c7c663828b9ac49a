"""What a check-up knows of the machine, as plain values: a test builds one by hand. None = could not be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CardFacts:
    """One GPU of this process, as NVML gives it."""

    index: int = 0
    """torch's number."""
    name: str = "NVIDIA GPU"
    uuid: str = ""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    """The device is a MIG slice of a card."""
    busy_pct: float | None = None
    """NVML's utilization at the moment of the check-up."""
    other_processes: int | None = None
    other_bytes: int | None = None


@dataclass(frozen=True)
class TorchFacts:
    """The torch that is installed."""

    version: str
    cuda: str = ""
    """CUDA version of the build, such as `12.8`; empty for a build without CUDA."""
    hip: str = ""
    """ROCm version of the build; empty if it is none."""
    available: bool | None = False
    """It uses CUDA (True) or cannot (False); None = a driver is there, and torch was not asked (see `cuda.py`)."""
    devices: int = 0
    """0 where torch was not asked."""
    mps: bool = False
    arches: tuple[str, ...] = ()
    """torch.cuda.get_arch_list(), such as `sm_90`, `compute_90`."""


@dataclass(frozen=True)
class Facts:
    """Everything a check-up judges."""

    cards: tuple[CardFacts, ...] = ()
    """The GPUs that this process sees."""
    cards_installed: int = 0
    """The GPUs that NVML counts, seen by this process or not."""
    cards_refused: int = 0
    """The GPUs of these that this process may not open."""
    visible_devices: str | None = None
    """CUDA_VISIBLE_DEVICES; None = not set."""
    nvml_problem: str = "no-driver"
    """`no-library`, `no-driver`, NVML's own message, or empty if NVML works."""
    nvidia_on_bus: int | None = None
    """NVIDIA display controllers on the PCI bus; None where the bus cannot be read."""
    driver_loaded: bool = False
    """The kernel has NVIDIA's driver, whether or not it can be reached from here."""
    driver: str = ""
    driver_cuda: tuple[int, int] | None = None
    """Highest CUDA version that the driver serves."""
    cuda_in_use: bool = False
    """This process has initialised CUDA: memory and utilization on the card may be its own."""
    torch: TorchFacts | None = None
    """None: torch cannot be imported."""
    usable_cores: float = 1.0
    os_cores: int = 1
    physical_cores: int | None = None
    affinity_cores: int = 1
    shm: tuple[int, int] | None = None
    """/dev/shm: free and total bytes."""
    start_method: str = "fork"
    order_note: str = ""
    """Why NVML's readings may stand under another number than torch's."""

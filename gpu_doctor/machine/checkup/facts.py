"""The facts about a machine that a check-up judges, as plain values that a test can build; None = could not be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CardFacts:
    """Facts about one GPU of this process, from NVML."""

    index: int = 0
    """torch's index."""
    name: str = "NVIDIA GPU"
    uuid: str = ""
    memory_bytes: int | None = None
    memory_used_bytes: int | None = None
    capability: tuple[int, int] | None = None
    mig: bool = False
    """True if the device is a MIG slice of a card."""
    busy_pct: float | None = None
    """NVML's utilization at the moment of the check-up, in per cent."""
    other_processes: int | None = None
    """Number of other processes on the GPU."""
    other_bytes: int | None = None
    """Memory of the other processes on the GPU, in bytes."""


@dataclass(frozen=True)
class TorchFacts:
    """Facts about the installed torch."""

    version: str
    cuda: str = ""
    """CUDA version of the build, such as `12.8`; empty for a build without CUDA."""
    hip: str = ""
    """ROCm version of the build; empty for a build without ROCm."""
    available: bool | None = False
    """True if this process uses CUDA, False if it cannot; None if there is a driver but CUDA is not in use yet (see
    `cuda.py`)."""
    devices: int = 0
    """Number of CUDA devices; 0 if CUDA is not in use yet."""
    mps: bool = False
    arches: tuple[str, ...] = ()
    """torch.cuda.get_arch_list(), such as `sm_90`, `compute_90`."""


@dataclass(frozen=True)
class Facts:
    """All facts that a check-up judges."""

    cards: tuple[CardFacts, ...] = ()
    """The GPUs that this process sees."""
    cards_installed: int = 0
    """Number of GPUs that NVML counts, visible to this process or not."""
    cards_refused: int = 0
    """Number of these that this process may not open."""
    visible_devices: str | None = None
    """Value of CUDA_VISIBLE_DEVICES; None = not set."""
    nvml_problem: str = "no-driver"
    """`no-library`, `no-driver`, NVML's own message, or empty if NVML works."""
    nvidia_on_bus: int | None = None
    """Number of NVIDIA display controllers on the PCI bus; None if the bus cannot be read."""
    driver_loaded: bool = False
    """True if the kernel has loaded NVIDIA's driver, even if this process cannot reach it."""
    driver: str = ""
    """Version of the driver."""
    driver_cuda: tuple[int, int] | None = None
    """Highest CUDA version that the driver supports."""
    cuda_in_use: bool = False
    """True if this process has initialised CUDA, so that memory and utilization on the card may be its own."""
    torch: TorchFacts | None = None
    """Facts about torch; None if torch cannot be imported."""
    usable_cores: float = 1.0
    os_cores: int = 1
    physical_cores: int | None = None
    affinity_cores: int = 1
    shm: tuple[int, int] | None = None
    """Free and total space in /dev/shm, in bytes."""
    start_method: str = "fork"
    """Method by which worker processes are started."""
    order_note: str = ""
    """Reason why NVML's index of a GPU may differ from torch's; empty if it cannot."""

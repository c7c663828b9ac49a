"""What torch's allocator holds on each device: read only where torch is imported and the device is already in use.

A probe never wakes a device: initialising CUDA on a thread of ours would break a later fork of workers that use it.
The peak is the run's, not each step's: the allocator keeps one peak for the process, a reset cannot be taken back, and
`torch.cuda.max_memory_allocated` of the user's own code would tell another number after it. So the peak of a run is
known once it is above what the process had reached before; until then nothing is told, as readings now and then miss
it. What the copies of a trial take on the device is left out.
GPU: not yet run on one.

A trial keeps the state of the training on the card where there is room. What that takes is no memory of the user's
program: it is told here by `hold`, which needs no torch, and taken off where memory is read.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from gpu_doctor.machine.cards import architecture_support
from gpu_doctor.machine.probe import Form, ProbeScope, Reader, Reading, readings

_lock = threading.Lock()
_held: weakref.WeakKeyDictionary[object, Mapping[int, int]] = weakref.WeakKeyDictionary()


METRICS: Final[Mapping[str, Form]] = {
    "torch_allocated_bytes": ("bytes", "allocated by torch", "memory"),
    "torch_reserved_bytes": ("bytes", "reserved by torch", "memory"),
    "torch_peak_bytes": ("bytes", "peak allocated in this run", "detail"),
    "torch_alloc_retries": ("count", "allocations that needed a second try", "detail"),
    "torch_inactive_split_bytes": ("bytes", "free blocks that cannot be released", "detail"),
    "architecture_support": ("count", "machine code for the card: 2 yes, 1 translated at first use, 0 no", "detail"),
}


def torch_if_loaded() -> Any | None:
    """torch, if somebody imported it completely; None otherwise."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "cuda") and hasattr(torch, "version") else None


def cuda_in_use() -> bool:
    """True if this process has initialised CUDA through torch; never initialises it."""
    torch = torch_if_loaded()
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except Exception:
        return False


def device_uuids() -> tuple[str, ...]:
    """UUIDs of the CUDA devices in torch's order, without prefix; empty before CUDA is in use or where unknown."""
    torch = torch_if_loaded()
    if torch is None or not cuda_in_use():
        return ()
    try:
        every = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return tuple(str(one.uuid) for one in every)
    except Exception:  # torch before 2.3 has no uuid
        return ()


class _CudaDevice:
    """One device's allocator in one run."""

    def __init__(self, index: int, before: Mapping[str, Any] | None = None) -> None:
        """Args: index: torch's number. before: what its allocator told when the run began; empty = nothing yet."""
        before = before or {}
        self._index = index
        self._peak: float | None = None
        """Of this run, None = not known."""
        self._old_peak = float(before["allocated_bytes"]["all"]["peak"]) if before else 0.0
        self._old_retries = float(before.get("num_alloc_retries", 0))
        self._asked = False

    def read(self, torch: Any) -> list[Reading]:
        """Allocated, reserved, peak, retries and what else tells; empty while nothing was ever allocated on it."""
        stats = torch.cuda.memory_stats_as_nested_dict(self._index)
        if not stats:
            return []
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        now, peak = float(allocated["current"]), float(allocated["peak"])
        retries = float(stats.get("num_alloc_retries", 0))
        self._old_peak = min(self._old_peak, peak)  # the user's code reset it
        ours = float(held_bytes(self._index))
        if peak > self._old_peak:
            self._peak = max(self._peak or 0.0, peak - ours)
        if not reserved["peak"]:
            return []
        known = None if self._asked else _support(torch, self._index)  # it does not change
        self._asked = True
        values = {
            "torch_allocated_bytes": now - ours,
            "torch_reserved_bytes": reserved["current"] - ours,
            "torch_peak_bytes": self._peak,
            "torch_alloc_retries": max(retries - self._old_retries, 0.0),
            "torch_inactive_split_bytes": stats.get("inactive_split_bytes", {}).get("all", {}).get("current"),
            "architecture_support": known,
        }
        return readings(METRICS, values, self._index)


def _support(torch: Any, device: int) -> int | None:
    """`cards.architecture_support` of a device that is in use; None where torch cannot tell."""
    try:
        arches, capability = torch.cuda.get_arch_list(), torch.cuda.get_device_capability(device)
    except Exception:
        return None
    return architecture_support(capability, arches) if arches else None


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader that stays silent until torch and a device are in use."""
    cuda: dict[int, _CudaDevice] = {}
    if cuda_in_use():
        memory: Any = sys.modules["torch"].cuda
        for index in range(memory.device_count()):
            cuda[index] = _CudaDevice(index, memory.memory_stats_as_nested_dict(index))

    def read() -> list[Reading]:
        torch = torch_if_loaded()
        if torch is None:
            return []
        if cuda_in_use():
            found = [cuda.setdefault(index, _CudaDevice(index)) for index in range(torch.cuda.device_count())]
            return [reading for device in found for reading in device.read(torch)]
        return _mps(torch)

    yield read


def _mps(torch: Any) -> list[Reading]:
    """What the Metal allocator holds, once it holds anything (Apple: not yet run on one)."""
    backend = getattr(getattr(torch, "backends", None), "mps", None)
    mps = getattr(torch, "mps", None)
    if backend is None or mps is None or not backend.is_available():
        return []
    allocated, driver = mps.current_allocated_memory(), mps.driver_allocated_memory()
    values = {"torch_allocated_bytes": allocated, "torch_reserved_bytes": driver}
    return readings(METRICS, values, 0) if allocated > 0 else []


def hold(owner: object, by_device: Mapping[int, int]) -> None:
    """Notes down that `owner` has copies, bytes by number of the device, for as long as it lives."""
    with _lock:
        _held[owner] = by_device


def held_bytes(device: int) -> int:
    """What all copies together take on a device; may be asked on any thread."""
    with _lock:
        return sum(one.get(device, 0) for one in list(_held.values()))

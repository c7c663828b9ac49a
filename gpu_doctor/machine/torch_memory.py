"""Reads the memory of torch's allocator on each device, only if torch is imported and the device is already in use.

A probe never starts a device: initialising CUDA on a thread of ours would break a later fork of workers that use it.
The peak is that of the run, not of each step. The allocator has one peak for the process; a reset could not be undone
and would change `torch.cuda.max_memory_allocated` in the user's own code. So the peak of a run is known once it exceeds
the earlier peak of the process. Until then none is reported, because a peak can fall between two readings.
GPU: not yet run on one.

A trial stores the state of the training on the card if there is room. This memory is not the user's program's: the
trial registers it with `hold`, which needs no torch, and it is subtracted from the readings.
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
"""Bytes of each owner's copies, by the index of the device."""


METRICS: Final[Mapping[str, Form]] = {
    "torch_allocated_bytes": ("bytes", "allocated by torch", "memory"),
    "torch_reserved_bytes": ("bytes", "reserved by torch", "memory"),
    "torch_peak_bytes": ("bytes", "peak allocated in this run", "detail"),
    "torch_alloc_retries": ("count", "allocations that needed a second try", "detail"),
    "torch_inactive_split_bytes": ("bytes", "free blocks that cannot be released", "detail"),
    "architecture_support": ("count", "machine code for the card: 2 yes, 1 translated at first use, 0 no", "detail"),
}


def torch_if_loaded() -> Any | None:
    """Returns torch if it is completely imported, else None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "cuda") and hasattr(torch, "version") else None


def cuda_in_use() -> bool:
    """Returns True if this process has initialised CUDA through torch; never initialises it."""
    torch = torch_if_loaded()
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except Exception:
        return False


def device_uuids() -> tuple[str, ...]:
    """Returns the UUIDs of the CUDA devices in torch's order, without prefix; empty if CUDA is not in use yet."""
    torch = torch_if_loaded()
    if torch is None or not cuda_in_use():
        return ()
    try:
        every = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        return tuple(str(device.uuid) for device in every)
    except Exception:  # torch before 2.3 has no uuid
        return ()


class _CudaDevice:
    """The allocator of one device in one run."""

    def __init__(self, index: int, before: Mapping[str, Any] | None = None) -> None:
        """Begins with the allocator's statistics when the run began.

        Args:
            index: torch's index of the device.
            before: The statistics; empty or None if nothing was allocated yet.
        """
        before = before or {}
        self._index = index
        self._peak: float | None = None
        """Peak of this run in bytes; None = not known."""
        self._old_peak = float(before["allocated_bytes"]["all"]["peak"]) if before else 0.0
        self._old_retries = float(before.get("num_alloc_retries", 0))
        self._support_read = False

    def read(self, torch: Any) -> list[Reading]:
        """Returns the readings of the allocator; empty if nothing was ever allocated on the device."""
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
        known = None if self._support_read else _support(torch, self._index)  # it does not change
        self._support_read = True
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
    """Returns `cards.architecture_support` of a device in use; None if torch does not report its architectures."""
    try:
        arches, capability = torch.cuda.get_arch_list(), torch.cuda.get_device_capability(device)
    except Exception:
        return None
    return architecture_support(capability, arches) if arches else None


@contextmanager
def opened(scope: ProbeScope) -> Iterator[Reader | None]:
    """Yields a reader that returns nothing until torch and a device are in use."""
    cuda: dict[int, _CudaDevice] = {}
    if cuda_in_use():
        memory: Any = sys.modules["torch"].cuda
        for index in range(memory.device_count()):
            cuda[index] = _CudaDevice(index, memory.memory_stats_as_nested_dict(index))

    def read() -> list[Reading]:
        """Reads all CUDA devices in use, or else the Metal device."""
        torch = torch_if_loaded()
        if torch is None:
            return []
        if cuda_in_use():
            found = [cuda.setdefault(index, _CudaDevice(index)) for index in range(torch.cuda.device_count())]
            return [reading for device in found for reading in device.read(torch)]
        return _mps(torch)

    yield read


def _mps(torch: Any) -> list[Reading]:
    """Returns the readings of the Metal allocator, once anything is allocated (Apple: not yet run on one)."""
    backend = getattr(getattr(torch, "backends", None), "mps", None)
    mps = getattr(torch, "mps", None)
    if backend is None or mps is None or not backend.is_available():
        return []
    allocated, driver = mps.current_allocated_memory(), mps.driver_allocated_memory()
    values = {"torch_allocated_bytes": allocated, "torch_reserved_bytes": driver}
    return readings(METRICS, values, 0) if allocated > 0 else []


def hold(owner: object, by_device: Mapping[int, int]) -> None:
    """Registers the copies of `owner`, in bytes by the index of the device, for as long as `owner` lives."""
    with _lock:
        _held[owner] = by_device


def held_bytes(device: int) -> int:
    """Returns the size of all registered copies on a device in bytes; for any thread."""
    with _lock:
        return sum(by_device.get(device, 0) for by_device in list(_held.values()))

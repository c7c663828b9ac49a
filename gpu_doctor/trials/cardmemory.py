"""A device's memory as the search for the largest batch needs it: its peak since a moment, and what there is.

GPU: not yet run on one.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Memory(Protocol):
    """A device's memory, as the search needs it."""

    def reset(self) -> None:
        """Forget the peak so far."""

    def peak_bytes(self) -> float:
        """Highest since the reset."""

    def limit_bytes(self) -> float:
        """What this process could hold."""


class CardMemory:
    """The memory of a CUDA device through torch, which the code that is tried has imported.

    The search resets torch's own peak (`torch.cuda.max_memory_allocated`), which code of one's own may read.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._cuda: Any = sys.modules["torch"].cuda

    def reset(self) -> None:
        """See `Memory`."""
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> float:
        """See `Memory`."""
        return float(self._cuda.max_memory_allocated(self._device))

    def limit_bytes(self) -> float:
        """What is free on the device, and what torch holds of it already: other processes' part is left out."""
        free, _ = self._cuda.mem_get_info(self._device)
        return float(free) + float(self._cuda.memory_reserved(self._device))

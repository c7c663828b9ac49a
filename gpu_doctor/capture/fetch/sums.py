"""What is summed over the fetches of one process."""

from __future__ import annotations

from typing import Final, NamedTuple

STAND_FOR: Final = 0.5
"""Fetches whose mean is below this part of the mean of all say nothing of what the slow ones did."""


class Sums(NamedTuple):
    """What a Tally holds, as sums."""

    batches: float
    wall_s: float
    cpu_s: float
    collate_s: float
    counted: float
    """Fetches for which the kernel's counters were read; what follows is of them alone."""
    counted_wall_s: float
    queued_s: float
    read_bytes: float
    stored_bytes: float
    on_core_s: float
    stored_s: float
    """Wall seconds of those fetches during which anything came from storage."""
    timed_wall_s: float
    """Wall seconds of the fetches whose CPU and collate seconds were read, times their weight, as those are."""
    collate_cpu_s: float

    @property
    def counted_stand_for_all(self) -> bool:
        """Whether the fetches that were counted took about as long as any: else few slow ones were all passed over."""
        return self.counted_wall_s * self.batches >= STAND_FOR * self.wall_s * self.counted

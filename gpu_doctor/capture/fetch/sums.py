"""What is summed over the fetches of one process."""

from __future__ import annotations

from typing import NamedTuple


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

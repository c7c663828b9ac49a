"""How fast the machine of a run is at what a change of settings would add or take away, timed there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Speeds:
    """Timed when a run is over, most of them once in a process; None = not timed, as what it tells of was not there."""

    message_s: float | None = None
    """Seconds that each side needs to hand a tensor over from one process to another, whatever it holds;"""
    new_byte_s: float | None = None
    """and for each of its bytes."""
    copied_bytes_per_s: float | None = None
    """Of memory that is in use already, as copies of a batch into pinned memory are."""
    drawn_index_s: float | None = None
    """Seconds an index of a random order of a dataset, drawn as a list;"""
    freed_index_s: float | None = None
    """and for freeing it."""
    python_round_s: float | None = None
    """CPU seconds of a round of a small Python loop."""

"""Which pairs of runs are fair although all of them read the same samples: who comes first reads from the storage.

Both sides of a trial begin in the same state, so they draw the same samples, and the baseline goes first (where it
fails, that is not for the settings under trial). What it reads from the storage the candidate finds in the page cache,
and is faster for it, whatever it changes. Going first in turns would not help: later pairs find all in the cache.
So a pair is left out in which one side read clearly more from the storage than the warmest side of the trial.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_doctor.recording import Recording

TOLD_SHARE: Final = 0.03
"""Part of a run's wall-clock from which on reading from the storage counts: it would make a gain worth keeping."""
CLEARLY: Final = 2.0
"""So many times the warmest side's part of the fetches: data that never fit into the cache are read by all alike."""


def warm_pairs(bases: Sequence[Recording], candidates: Sequence[Recording]) -> list[bool]:
    """For each pair, whether none of its sides read clearly more from the storage than another side of the trial."""
    pairs = list(zip(bases, candidates, strict=False))
    warmest = min((_stored_part(one) for pair in pairs for one in pair if len(one.steps)), default=0.0)
    return [not any(_is_colder(one, warmest) for one in pair) for pair in pairs]


def is_warming(bases: Sequence[Recording], candidates: Sequence[Recording]) -> bool:
    """Whether fair pairs read from the storage: the next one may find that in the cache, and they were none."""
    fair = warm_pairs(bases, candidates)
    sides = [one for pair, kept in zip(zip(bases, candidates, strict=False), fair, strict=True) if kept for one in pair]
    return any(_stored_part(one) * _fetching_share(one) >= TOLD_SHARE for one in sides)


def _is_colder(one: Recording, warmest: float) -> bool:
    part = _stored_part(one)
    return part >= CLEARLY * warmest and (part - warmest) * _fetching_share(one) >= TOLD_SHARE


def _stored_part(recording: Recording) -> float:
    """Part of the fetch time in fetches that read from the storage: the number of workers leaves it as it is."""
    fetches = [one for one in recording.fetches if one.stored_s is not None]
    wall_s = sum(one.wall_s for one in fetches)
    return min(sum(one.stored_s or 0.0 for one in fetches) / wall_s, 1.0) if wall_s > 0 else 0.0


def _fetching_share(recording: Recording) -> float:
    """Part of the loop's wall-clock that its fetches take, workers side by side, were nothing of them hidden."""
    wall_s = float(recording.steps.wall_s.sum())
    return min(sum(one.wall_s / max(one.workers, 1) for one in recording.fetches) / wall_s, 1.0) if wall_s > 0 else 0.0

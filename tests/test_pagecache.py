"""A cold page cache: the baseline goes first and reads from the storage what the candidate then finds in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from gpu_doctor.casefile import Case
from gpu_doctor.effect import compare, needs_more
from gpu_doctor.pagecache import warm_pairs
from gpu_doctor.recording import Recording, Settings
from gpu_doctor.trial import Result
from tests.recordings import Loop

COLD_MS, WARM_MS = 40.0, 4.0


def side(stored: float = 0.0, steps: int = 50, workers: int = 0, settings: Any = None, **more: Any) -> Recording:
    """A side of which so much of the fetches (0..1) read from the storage, each ten times as long as from memory."""
    fetch = stored * COLD_MS + (1 - stored) * WARM_MS
    wait = max(fetch / workers - 10.0, 0.0) if workers else fetch
    made = Loop(steps=steps, wait=wait, fetch=fetch, workers=workers, settings=settings or {}, **more).recording()
    (one,) = made.fetches
    part = stored * COLD_MS / fetch
    read = dataclasses.replace(one, stored_bytes=stored * 1e6 * one.batches, stored_s=part * one.wall_s)
    return dataclasses.replace(made, fetches=(read,), outcome="budget-reached")


class Disk(Case):
    """A case that reads its samples from a slow disk; what was read once lies in the page cache. Both sides equal."""

    def __init__(self, forgets: bool = False, gain: float = 1.0) -> None:
        super().__init__("pass", {"weights": torch.zeros(3)})
        self.cached, self.forgets, self.gain = False, forgets, gain
        self.sides = 0

    def _once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None) -> Result:
        cold, self.cached = not self.cached, not self.forgets
        self.sides += 1
        made = side(float(cold), settings=settings)
        if settings:
            made.steps.wall_s[:] /= self.gain
        return Result(made)


def test_a_no_op_on_a_cold_cache_is_no_difference_and_says_why() -> None:
    case = Disk()
    effect = case.trial({"num_workers": 0})
    assert effect.verdict == "no-difference"
    assert (effect.cold_pairs, case.sides) == (1, 6), "one pair more than two equal sides take"
    assert "1 pair of runs not judged, as one side read from the storage what others found in the page cache" in str(
        effect
    )


def test_what_is_faster_is_faster_on_a_cold_cache_too() -> None:
    effect = Disk(gain=2.0).trial({"num_workers": 0})
    assert effect.verdict == "faster"
    assert effect.speedup == pytest.approx(2.0, rel=0.05)


def test_what_all_sides_read_from_the_storage_is_judged() -> None:
    """A set that never fits into the cache: every side waits for the disk, workers or not."""
    effect = Disk(forgets=True, gain=2.0).trial({"num_workers": 0})
    assert (effect.verdict, effect.cold_pairs) == ("faster", 0)
    assert "page cache" not in str(effect)
    slow, fast = [side(1.0), side(0.9)], [side(0.8, workers=8), side(1.0, workers=8)]
    assert compare(slow, fast).cold_pairs == 0
    assert compare(slow, fast).verdict == "faster"


def test_a_lone_unfair_pair_claims_nothing() -> None:
    effect = compare(side(1.0), side())
    assert (effect.verdict, effect.cold_pairs) == ("inconclusive", 1)
    assert effect.speedup is not None and effect.speedup > 1.5
    assert str(effect).count("page cache") == 1
    assert needs_more(side(1.0), side())


def test_a_pair_that_read_from_the_storage_is_never_beyond_doubt() -> None:
    """A baseline whose seconds ran out while it read: the candidate read further, so both look alike as a whole."""
    begun, further = side(1.0, steps=20), side(0.5, steps=50)
    further.steps.wall_s[:20] = 0.014
    assert compare(begun, further).verdict == "faster"
    assert needs_more(begun, further)
    bases, candidates = [begun, side()], [further, side()]
    assert warm_pairs(bases, candidates) == [False, True]
    assert needs_more(bases, candidates)
    bases, candidates = [*bases, side()], [*candidates, side()]
    assert compare(bases, candidates).verdict == "no-difference"
    assert not needs_more(bases, candidates)


def test_a_stray_read_and_reads_behind_workers_leave_a_pair_as_it_is() -> None:
    assert warm_pairs([side(0.001)], [side()]) == [True]
    hidden = side(0.0, forward=4000.0)
    (one,) = hidden.fetches
    hidden = dataclasses.replace(hidden, fetches=(dataclasses.replace(one, stored_s=one.wall_s),))
    assert warm_pairs([hidden], [side()]) == [True]


def test_where_nobody_counted_every_pair_is_judged() -> None:
    plain = Loop(wait=4.0).recording()
    assert plain.fetches[0].stored_s is None
    assert warm_pairs([plain, plain], [plain, plain]) == [True, True]

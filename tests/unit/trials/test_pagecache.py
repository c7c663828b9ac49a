"""A cold page cache: the baseline goes first and reads from the storage what the candidate then finds in memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from gpu_doctor.recording import Recording, Settings
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.compare.effect import compare
from gpu_doctor.trials.compare.pairs import warm_pairs
from gpu_doctor.trials.rounds import needs_more
from gpu_doctor.trials.run import Result
from tests.support.recordings import Loop

COLD_MS, WARM_MS = 40.0, 4.0


def side(stored: float = 0.0, steps: int = 50, workers: int = 0, settings: Any = None, **more: Any) -> Recording:
    """A side of which so much of the fetches (0..1) read from the storage, each ten times as long as from memory."""
    fetch = stored * COLD_MS + (1 - stored) * WARM_MS
    wait = max(fetch / workers - 10.0, 0.0) if workers else fetch
    made = Loop(steps=steps, wait=wait, fetch=fetch, workers=workers, settings=settings or {}, **more).recording()
    (one,) = made.fetches
    part = stored * COLD_MS / fetch
    read = dataclasses.replace(
        one, read_bytes=1e6 * one.batches, stored_bytes=stored * 1e6 * one.batches, stored_s=part * one.wall_s
    )
    return dataclasses.replace(made, fetches=(read,), outcome="budget-reached")


class Disk(Case):
    """A case that reads its samples from a slow disk; what was read once lies in the page cache. Both sides equal."""

    def __init__(self, forgets: bool = False, gain: float = 1.0) -> None:
        super().__init__("pass", {"weights": torch.zeros(3)})
        self.cached, self.forgets, self.gain = False, forgets, gain
        self.sides = 0

    def once(self, settings: Settings, role: str, max_steps: int | None, max_s: float | None, text: str = "") -> Result:
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
    assert (effect.cold_pairs, case.sides) == (1, 8), "one pair more than two equal sides take"
    assert "1 pair of runs not judged" in str(effect) and "the page cache" in str(effect)


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
    assert needs_more([side(1.0)], [side()])


def test_a_pair_that_read_from_the_storage_is_never_beyond_doubt() -> None:
    """A baseline whose seconds ran out while it read: the candidate read further, so both look alike as a whole."""
    begun, further = side(1.0, steps=20), side(0.6, steps=50)
    further.steps.wall_s[:20] = 0.014
    assert compare(begun, further).verdict == "faster"
    assert needs_more([begun], [further])
    bases, candidates = [begun, side()], [further, side()]
    assert warm_pairs(bases, candidates) == [False, True]
    assert needs_more(bases, candidates)
    bases, candidates = [*bases, side(), side()], [*candidates, side(), side()]
    assert compare(bases, candidates).verdict == "no-difference"
    assert not needs_more(bases, candidates)


def with_fetch(recording: Recording, **changes: Any) -> Recording:
    (one,) = recording.fetches
    return dataclasses.replace(recording, fetches=(dataclasses.replace(one, **changes),))


def test_a_little_in_every_fetch_and_reads_behind_workers_leave_a_pair_as_it_is() -> None:
    """Opening a file reads its directory: every fetch is then one that read from the storage."""
    warm = side()
    wall_s, read = warm.fetches[0].wall_s, warm.fetches[0].read_bytes or 0.0
    stray = with_fetch(warm, stored_s=wall_s, stored_bytes=0.02 * read)
    assert warm_pairs([stray], [with_fetch(warm, stored_s=wall_s, stored_bytes=0.004 * read)]) == [True]
    quick = with_fetch(side(0.0, forward=0.0, backward=0.0), stored_s=0.0)
    assert not needs_more(3 * [stray], 3 * [quick])
    hidden = with_fetch(side(0.0, forward=4000.0), stored_s=wall_s, stored_bytes=read)
    assert warm_pairs([hidden], [side()]) == [True]


def test_a_memory_map_is_seen_where_it_reads_from_the_storage() -> None:
    """No file is read: the pages come in as they are touched."""
    cold = with_fetch(side(1.0), read_bytes=0.0)
    warm = with_fetch(side(), read_bytes=0.0)
    assert warm_pairs([cold, warm], [warm, warm]) == [False, True]


def test_a_larger_batch_reads_no_more_a_sample() -> None:
    large = side(1.0, batch=128)
    (one,) = large.fetches
    large = with_fetch(large, read_bytes=4e6 * one.batches, stored_bytes=4e6 * one.batches)
    assert warm_pairs([side(1.0)], [large]) == [True]


def test_where_nobody_counted_every_pair_is_judged() -> None:
    plain = Loop(wait=4.0).recording()
    assert plain.fetches[0].stored_s is None
    assert warm_pairs([plain, plain], [plain, plain]) == [True, True]


def test_a_candidate_whose_reads_workers_hide_is_still_the_warmest_side() -> None:
    """A set larger than the memory: both sides read the same bytes, of one of them it explains nothing."""
    slow = [side(0.25) for _ in range(3)]
    fast = [side(0.25, workers=64) for _ in range(3)]
    assert warm_pairs(slow, fast) == [True] * 3
    assert compare(slow, fast).verdict == "faster"

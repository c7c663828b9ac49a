"""A B A B: baseline and candidate alternate from the same state, until the interval is clear or the budget is spent.

When another pair of runs is worth its time is decided here too.
"""

from __future__ import annotations

import gc
import io
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.recording import Recording, Settings
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials.compare.effect import BROKEN, MEASURED_S, compare, side_of
from gpu_doctor.trials.compare.pairs import is_warming
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.snapshot.snapshot import Snapshot

BLOCK_SHARE: Final = 0.3
"""Part of the trial's seconds that one side of one round may take, so that both sides get their turn."""

LASTING: Final = 2.0
"""Of the least time by which a difference can be judged: the warm-up and the longest step count for nothing."""
MOST_TIMES: Final = 32
"""Of the steps that were asked for, where these last too short a time."""

FINISHED: Final = (
    "Running this again trains nothing: what it calls has finished its run. Create the trainer in this cell, or try "
    "the settings before the run."
)
BELIEVED: Final = 1.10
"""Smaller gains and losses are claimed only after a third pair: two pairs agree by chance too often."""
HALF: Final = 0.5
"""A claim is final once the interval leaves so much of the difference (of its logarithm): of equal sides on wandering
clocks 6 % were called faster or slower without, 2 % with it, for one pair more at 1.15x (benchmarks/effect.py)."""
MOST_PAIRS: Final = 28
"""Pairs of runs after which a comparison that is not clear is left inconclusive, if the trial's seconds last so long.
On a busy machine six left 54 % of equal sides and of true 1.15x open, 28 leave 1 %, for 11 and 15 pairs on the mean; on
quiet machines two or three are enough (benchmarks/effect.py)."""
MOST_UNREAD: Final = 6
"""Pairs of runs without an interval, each too short for one, after which no other is tried."""
ONE_PAIR: Final = 1.5
"""An interval beyond this is clear after one pair: more than a machine's mood explains."""


@dataclass
class Rounds:
    """The sides of a trial so far: `bases[i]` and `candidates[i]` ran next to each other."""

    once: Callable[[Settings, str, int, float], Result]
    """Runs the code once: settings, role, steps at most, seconds at most."""
    restore: Snapshot
    say: Callable[[str], None]
    stopped: Callable[[], bool]
    runs: Sequence[Recording] = ()
    """The runs before the trial: where they trained, a side that does not is no baseline."""
    bases: list[Recording] = field(default_factory=list)
    candidates: list[Recording] = field(default_factory=list)
    spent_s: float = 0.0
    """Seconds that the pairs so far took, the state put back included."""

    def pair(self, what: str, against: Settings, settings: Settings, steps: int, seconds: float) -> bool:
        """One round: baseline, then candidate; false if the trial ends with it.

        Args:
            what: says which round this is, for people. against, settings: of the two sides.
            steps: of one side; more of them where those of the pairs before lasted too short a time to be judged.
            seconds: of the whole trial, this pair being one of several.

        Raises:
            KeyboardInterrupt: if a side was interrupted, after the state was restored.
        """
        begin, before_s, steps = time.monotonic(), self.spent_s, self._lasting(steps)
        for role, side, into in (("baseline", against, self.bases), ("candidate", settings, self.candidates)):
            self.say(f"{what}: {role}")
            left_s = min(BLOCK_SHARE * seconds, max(seconds - self.spent_s, 1.0))
            goes_on = not self.stopped() and self._side(side, role, steps, left_s, into)
            self.spent_s = before_s + time.monotonic() - begin
            if not goes_on:
                return False
        return self.spent_s < seconds and needs_more(self.bases, self.candidates)

    def _lasting(self, steps: int) -> int:
        """So many steps, or as many as the faster side needs to be measured for long enough."""
        ended = [one for one in (*self.bases[-1:], *self.candidates[-1:]) if one.outcome == "budget-reached"]
        usual = [float(np.median(one.steps.wall_s / one.steps.count)) for one in ended if len(one.steps)]
        if not usual or min(usual) <= 0:
            return steps
        return max(steps, min(math.ceil(LASTING * MEASURED_S / min(usual)), MOST_TIMES * steps))

    def _side(self, side: Settings, role: str, steps: int, left_s: float, into: list[Recording]) -> bool:
        """One side of one round; false if the trial ends with it."""
        result = self.once(side, role, steps, left_s)
        into.append(result.recording)
        interrupted = isinstance(result.error, KeyboardInterrupt)
        del result  # its traceback holds the loop's frames, and those a loader's workers and the memory that ran out
        with uninterrupted():
            self.restore.restore()
        outcome = into[-1].outcome
        if outcome == "completed" and any(map(_trains, self.runs)) and not _trains(into[-1]):
            outcome = "refused"
            into[-1] = replace(into[-1], outcome=outcome, reason=FINISHED)
        if self.stopped() and outcome in ("completed", "budget-reached"):  # Stop came while the state was put back
            outcome = "stopped"
            into[-1] = replace(into[-1], outcome=outcome)
        if outcome == "out-of-memory":
            _free()
        if interrupted:
            raise KeyboardInterrupt
        return went_well(into[-1]) and not self.stopped()


def went_well(recording: Recording) -> bool:
    """Whether a side leaves something to compare; one that was ended before its first step has a reason."""
    return recording.outcome in ("completed", "budget-reached") and not recording.reason


def _trains(recording: Recording) -> bool:
    return bool((recording.steps.kind == TRAINING).any())


def not_restored(lost: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    """Clauses on what a trial could not put back.

    Args:
        lost: `Snapshot.unrestorable`. notes: what `Snapshot.restore` returned.
    """
    return tuple(dict.fromkeys((*([formatting.unrestorable(lost)] if lost else []), *notes)))


@contextmanager
def silence() -> Iterator[None]:
    """Swallows what a trial's code writes: the run has shown it already."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield


def _free() -> None:
    """Gives the memory of a side that did not fit back to the device."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def needs_more(baseline: Recording | Sequence[Recording], candidate: Recording | Sequence[Recording]) -> bool:
    """Whether another pair of runs is worth its time.

    A second pair always is, unless the first is beyond doubt. A third is before a small gain or loss is believed; more
    while the verdict is open, or a gain or loss is claimed of which the interval leaves little, up to MOST_PAIRS. None
    is after a failure, a refusal, an interrupt or a Stop. One pair that read from the storage, or measured too little,
    is never beyond doubt, and one that is not judged is made up for by another.
    """
    effect = compare(baseline, candidate)
    sides = side_of(baseline), side_of(candidate)
    made = min(map(len, sides))
    low, high, pairs = effect.low, effect.high, effect.pairs
    if effect.outcome in BROKEN or made >= MOST_PAIRS:
        return False
    if low is None or high is None or effect.speedup is None or not pairs:
        return made < MOST_UNREAD
    doubted = low < ONE_PAIR and high > 1 / ONE_PAIR
    if effect.verdict == "inconclusive":
        return True
    if pairs < 2:  # where losses differ, another baseline tells whether that comes by itself
        return doubted or is_warming(*sides) or effect.loss_verdict == "different"
    if effect.verdict == "no-difference":
        return False
    end = low if effect.verdict == "faster" else high
    small = 1 / BELIEVED < effect.speedup < BELIEVED
    return (small and pairs < 3) or (doubted and abs(math.log(end)) < HALF * abs(math.log(effect.speedup)))

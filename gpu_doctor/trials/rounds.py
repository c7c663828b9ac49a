"""A B B A: baseline and candidate take turns from the same state, until the interval is clear or the budget is spent.

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

from gpu_doctor.diagnosis import paced_s
from gpu_doctor.machine import torch_memory
from gpu_doctor.recording import CLEAN, Recording, Settings
from gpu_doctor.recording.steps import TRAINING
from gpu_doctor.trials.compare.effect import BROKEN, MEASURED_S, Effect, compare
from gpu_doctor.trials.interrupts import uninterrupted
from gpu_doctor.trials.run import Result
from gpu_doctor.trials.said_before import unrestorable
from gpu_doctor.trials.side_budget import WAVES, before_s
from gpu_doctor.trials.snapshot.snapshot import Snapshot

BLOCK_SHARE: Final = 0.125
"""Part of the trial's seconds that a side measures if that is enough (`side_budget`): two whole A B B A find room."""
FIRST_S: Final = 300.0
"""Seconds after which no second pair is started."""

LASTING: Final = 2.0
"""Of the least time by which a difference can be judged: the warm-up and the longest step count for nothing."""
MOST_TIMES: Final = 32
"""Of the steps that were asked for, where these last too short a time."""
LONGER_AFTER: Final = 4
"""Pairs without an answer after which runs become twice as long, and twice again after as many more. In replays of a
loop whose runs of 0.15 s lie 20 % apart, 1.15x was found in 99 % of the trials instead of 75 %, with half the pairs."""
MOST_DOUBLED: Final = 2
"""Times."""

FINISHED: Final = (
    "A second run trains nothing: the trainer has already reached its last epoch. Create the trainer in this cell, or "
    "try the settings before the run."
)
FEWEST_PAIRS: Final = 2
"""One whole A B B A: what drifts evenly while it lasts (clocks, temperature) is on both sides alike."""
MOST_PAIRS: Final = 40
"""Pairs of runs after which what is not clear is left inconclusive, if the trial's seconds last so long."""
MOST_UNREAD: Final = 6
"""Pairs of runs without an interval, each too short for one, after which no other is tried."""


@dataclass
class Rounds:
    """The runs of a trial so far: `bases[i]` and `candidates[i]` ran next to each other.

    The baseline was first in every other pair.
    """

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
    """Seconds that the sides so far measured: what comes before, and putting the state back, is none of them."""
    took_s: float = 0.0
    """Seconds that the pairs so far took, with all of that."""
    effect: Effect | None = None
    """Result of the pairs so far; None before the first."""

    def pair(self, what: str, against: Settings, settings: Settings, steps: int, seconds: float) -> bool:
        """Runs one pair, baseline and candidate in alternating order; returns False if the trial ends with it.

        The very first side is a baseline: where that fails, it is not for the settings under trial.

        Args:
            what: says which round this is, for people.
            against: knob values of the baseline side.
            settings: knob values of the candidate side.
            steps: of one side; more where those of the pairs before were measured for too short a time, fewer where
                they last long (see `side_budget`).
            seconds: of the trial, in which a further pair must find room once a whole A B B A was made.

        Raises:
            KeyboardInterrupt: if a side was interrupted, after the state was restored.
        """
        begin, earlier_s = time.monotonic(), self.took_s
        waves = WAVES * max(int(one.get("num_workers", 0)) for one in (against, settings))
        steps = max(self._lasting(steps), waves)
        sides = [("baseline", against, self.bases), ("candidate", settings, self.candidates)]
        if len(self.bases) % 2:
            sides.reverse()
        for role, side, into in sides:
            self.say(f"{what}: {role}")
            went_on = not self.stopped() and self.side(side, role, steps, BLOCK_SHARE * seconds, into)
            self.took_s = earlier_s + time.monotonic() - begin
            if not went_on:
                return False
            if into[-1].outcome == "budget-reached":
                steps = min(steps, int(into[-1].steps.count.sum()) + waves)  # as many on the other side
        made = min(len(self.bases), len(self.candidates))
        lasted_s = self.took_s - earlier_s  # as long as another pair takes
        room = self.took_s + lasted_s <= seconds if made >= FEWEST_PAIRS else self.took_s < FIRST_S
        self.effect = compare(self.bases, self.candidates)
        return not self.stopped() and room and goes_on(self.effect, made)

    def _lasting(self, steps: int) -> int:
        """Returns `steps`, or more if a side would measure too briefly for its set-up time.

        A side measures long enough to be judged, and as long as what is around its measuring takes. Pairs that give no
        answer are followed by longer ones.
        """
        pairs = len(self.bases)
        longer: int = 2 ** min(pairs // LONGER_AFTER, MOST_DOUBLED)
        ended = [one for one in (*self.bases[-1:], *self.candidates[-1:]) if one.outcome == "budget-reached"]
        usual = [float(np.median(paced_s(one, one.steps) / one.steps.count)) for one in ended if len(one.steps)]
        wanted = float(steps)
        if usual and min(usual) > 0:
            around_s = (self.took_s - self.spent_s) / (2 * pairs)
            wanted = max(LASTING * MEASURED_S / min(usual), around_s / float(np.mean(usual)), wanted)
        return min(math.ceil(wanted * longer), int(MOST_TIMES) * steps)

    def side(
        self,
        side: Settings,
        role: str,
        steps: int,
        left_s: float,
        into: list[Recording],
    ) -> bool:
        """Runs one side of a pair; returns False if the trial ends with it.

        Args:
            side: knob values.
            role: of its recording.
            steps: at most.
            left_s: seconds to measure, at most.
            into: gets the recording.

        Raises:
            KeyboardInterrupt: if it was interrupted, after the state was restored.
        """
        begin = time.monotonic()
        result = self.once(side, role, steps, left_s)
        one = result.recording
        measured_s = max(time.monotonic() - begin - before_s(one), 0.0)
        interrupted = isinstance(result.error, KeyboardInterrupt)
        del result  # its traceback holds the loop's frames, those a loader's workers and the memory that ran out
        with uninterrupted():
            self.restore.restore()
        self.spent_s += measured_s
        into.append(one)
        outcome = one.outcome
        if outcome == "completed" and any(map(_trains, self.runs)) and not _trains(into[-1]):
            outcome = "refused"
            into[-1] = replace(into[-1], outcome=outcome, reason=FINISHED)
        if self.stopped() and outcome in CLEAN:  # Stop came while the state was put back
            outcome = "stopped"
            into[-1] = replace(into[-1], outcome=outcome)
        if outcome == "out-of-memory":
            _free()
        if interrupted:
            raise KeyboardInterrupt
        return went_well(into[-1]) and not self.stopped()


def went_well(recording: Recording) -> bool:
    """True if the run has steps to compare; a run that was ended before its first step has a reason."""
    return recording.outcome in CLEAN and not recording.reason


def _trains(recording: Recording) -> bool:
    return bool((recording.steps.kind == TRAINING).any())


def not_restored(lost: Sequence[str], notes: Sequence[str]) -> tuple[str, ...]:
    """Returns clauses on what a trial could not put back.

    Args:
        lost: `Snapshot.unrestorable`.
        notes: what `Snapshot.restore` returned.
    """
    return tuple(dict.fromkeys((*([unrestorable(lost)] if lost else []), *notes)))


@contextmanager
def silence() -> Iterator[None]:
    """Mutes what a trial's code prints, as text or through `sys.stdout.buffer`: the first run has shown it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def _free() -> None:
    """Returns the memory of a side that did not fit to the device."""
    gc.collect()
    if torch_memory.cuda_in_use():
        sys.modules["torch"].cuda.empty_cache()


def needs_more(bases: Sequence[Recording], candidates: Sequence[Recording]) -> bool:
    """True if another pair of runs is worth its time, see `goes_on`."""
    return goes_on(compare(bases, candidates), min(len(bases), len(candidates)))


def goes_on(effect: Effect, made: int) -> bool:
    """True if another pair of runs is worth its time.

    It is before the pairs of a whole A B B A were judged, and while these give no answer (`Effect.settled`). None is
    after a failure, a refusal, an interrupt or a Stop. The interval holds however often it is looked at
    (`compare.ratio`), so that nothing else is asked of it.

    Args:
        effect: of the pairs so far.
        made: how many these are, those that were not judged among them.
    """
    if effect.outcome in BROKEN or made >= MOST_PAIRS:
        return False
    if effect.low is None or effect.high is None or not effect.pairs:
        return made < MOST_UNREAD
    return effect.pairs < FEWEST_PAIRS or not effect.settled

"""Runs the pairs of a trial in the order A B B A: baseline and candidate take turns from the same state.

Pairs are made until the interval is clear or the budget is spent; this module also decides whether another pair is
worth its time.
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
"""Target time of a side, as a multiple of the shortest time on which a difference can be judged: the warm-up and the
longest step do not count."""
MOST_TIMES: Final = 32
"""Largest multiple of the requested steps that a side runs if its steps are too short."""
LONGER_AFTER: Final = 4
"""Pairs without an answer after which runs become twice as long, and twice again after as many more. In replays of a
loop whose runs of 0.15 s lie 20 % apart, 1.15x was found in 99 % of the trials instead of 75 %, with half the pairs."""
MOST_DOUBLED: Final = 2
"""Largest number of times that the runs become twice as long."""

FINISHED: Final = (
    "A second run trains nothing: the trainer has already reached its last epoch. Create the trainer in this cell, or "
    "try the settings before the run."
)
FEWEST_PAIRS: Final = 2
"""Pairs in one whole A B B A, in which a steady drift (clocks, temperature) affects both sides alike."""
MOST_PAIRS: Final = 40
"""Largest number of pairs, if the trial's seconds allow so many; an unclear result is then inconclusive."""
MOST_UNREAD: Final = 6
"""Pairs without an interval, because their runs are too short, after which a trial makes no other pair."""


@dataclass
class Rounds:
    """The runs of a trial so far: `bases[i]` and `candidates[i]` ran next to each other.

    The baseline was first in every other pair.
    """

    once: Callable[[Settings, str, int, float], Result]
    """Runs the code once; takes the settings, the role, and the largest number of steps and of seconds."""
    restore: Snapshot
    say: Callable[[str], None]
    stopped: Callable[[], bool]
    runs: Sequence[Recording] = ()
    """Runs before the trial. If one of them trained, a side that does not train is refused."""
    bases: list[Recording] = field(default_factory=list)
    candidates: list[Recording] = field(default_factory=list)
    spent_s: float = 0.0
    """Time measured by the sides so far, in seconds, without their set-up and without restoring the state."""
    took_s: float = 0.0
    """Time that the pairs so far took, in seconds, with set-up and restoring."""
    effect: Effect | None = None
    """Result of the pairs so far; None before the first."""

    def pair(self, what: str, against: Settings, settings: Settings, steps: int, seconds: float) -> bool:
        """Runs one pair, baseline and candidate in alternating order; returns False if the trial ends with it.

        The very first side is a baseline: if it fails, the settings under trial are not the reason.

        Args:
            what: name of the round, for the user.
            against: settings of the baseline side.
            settings: settings of the candidate side.
            steps: steps of one side; more if the pairs before were too short to measure, fewer if steps last long (see
                `side_budget`).
            seconds: time limit of the trial; a pair after the first whole A B B A must fit into it.

        Raises:
            KeyboardInterrupt: A side was interrupted; the state is restored.
        """
        begin, earlier_s = time.monotonic(), self.took_s
        waves = WAVES * max(int(settings_of_side.get("num_workers", 0)) for settings_of_side in (against, settings))
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

        A side measures long enough to be judged, and at least as long as its set-up and restoring take. Pairs without
        an answer are followed by longer pairs.
        """
        pairs = len(self.bases)
        longer: int = 2 ** min(pairs // LONGER_AFTER, MOST_DOUBLED)
        ended = [
            recording
            for recording in (*self.bases[-1:], *self.candidates[-1:])
            if recording.outcome == "budget-reached"
        ]
        usual = [
            float(np.median(paced_s(recording, recording.steps) / recording.steps.count))
            for recording in ended
            if len(recording.steps)
        ]
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
        budget_s: float,
        into: list[Recording],
    ) -> bool:
        """Runs one side of a pair; returns False if the trial ends with it.

        Args:
            side: settings of the side.
            role: role of its recording.
            steps: largest number of steps.
            budget_s: largest time to measure, in seconds.
            into: list that gets the recording.

        Raises:
            KeyboardInterrupt: The side was interrupted; the state is restored.
        """
        begin = time.monotonic()
        result = self.once(side, role, steps, budget_s)
        recording = result.recording
        measured_s = max(time.monotonic() - begin - before_s(recording), 0.0)
        interrupted = isinstance(result.error, KeyboardInterrupt)
        del (
            result
        )  # its traceback holds the loop's frames, and these hold the loader's workers and the memory that ran out
        with uninterrupted():
            self.restore.restore()
        self.spent_s += measured_s
        into.append(recording)
        outcome = recording.outcome
        if outcome == "completed" and any(map(_trains, self.runs)) and not _trains(into[-1]):
            outcome = "refused"
            into[-1] = replace(into[-1], outcome=outcome, reason=FINISHED)
        if self.stopped() and outcome in CLEAN:  # Stop was pressed while the state was restored
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
    """Returns clauses on what a trial could not restore.

    Args:
        lost: names of `Snapshot.unrestorable`.
        notes: clauses that `Snapshot.restore` returned.
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
    """Returns True if another pair of runs is worth its time.

    It is until a whole A B B A was judged, and while the pairs give no answer (`Effect.settled`). It is not after a
    failure, a refusal, an interrupt or a Stop. The interval is valid at any number of looks (`compare.ratio`), so no
    further condition is needed.

    Args:
        effect: effect of the pairs so far.
        made: number of pairs so far, including those that were not judged.
    """
    if effect.outcome in BROKEN or made >= MOST_PAIRS:
        return False
    if effect.low is None or effect.high is None or not effect.pairs:
        return made < MOST_UNREAD
    return effect.pairs < FEWEST_PAIRS or not effect.settled

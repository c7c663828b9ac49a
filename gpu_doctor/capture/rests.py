"""When the taps of a loop stand down: most steps of a short rhythm, so that watching them costs next to nothing.

Whatever a tap does, that it stands in the loop costs some microseconds a step, in caches that the training has filled.
So where a step is that short that watching it would cost more than the budget, the taps listen for a block of steps in
all their parts, and rest for many more. What is left is the loader's tap, which times the wait and the step, and a list
that torch itself writes each optimizer's steps to, so that a step without one, with two, or by another optimizer ends
the rest. Any other event that is heard does so too: the taps that a loop does not use in its steps never rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

from gpu_doctor import formatting
from gpu_doctor.capture.blockrows import Rows
from gpu_doctor.capture.eventnotes import Pulse
from gpu_doctor.capture.usual import FEWEST, Usual
from gpu_doctor.recording.steps import OTHER

SHORT_NS: Final = 2_500_000
"""A step in full costs some 25 us: of a longer one that is less than the 1 % that watching may cost."""
FIRST_STEPS: Final = 256
"""So many steps of a run are timed in full: those whose losses are kept one by one."""
FULL: Final = 32
"""Steps of a block in which all taps listen,"""
REST: Final = 1024
"""and of the rest after it, about: at random, so as not to beat with a period in the loop."""
REST_NS: Final = 400_000_000
"""No rest is longer: a view that asks for new rows twice a second gets some each time."""
_VARIED: Final = 0.25
JUDGED_NS: Final = 1_000_000_000
"""Work of rested steps after which it is asked whether they are like those timed in full."""
UNLIKE: Final = 0.03
"""As much more of their time than of those timed may lie far beyond the usual, or something was not heard there."""
SHORTEST: Final = 64
"""A rest that is broken off after fewer steps costs more than it gains; the next one comes twice as late."""
FIRST_PAUSE: Final = 1024
"""Steps without a rest where it was more; twice as many the next time."""
AS_NOTES: Final = 11
"""Notes as dear as what a rested step costs besides its own two: 8 us were measured in turns of 25 steps in one loop
(a 64-wide MLP, 0.36 ms), where a note takes 0.64 us by calibration."""
MANY: Final = 4
"""Optimizer steps without a batch in between: the loop does not pull from its loader any more."""
WORTH_SAYING: Final = 0.1
EDGES: Final = ("opening", "opened", "ended", "marks")
"""What ends a rest but says nothing against going on with it: an epoch's edge, or an evaluation's, or that steps are to
be marked on the device."""


class Sleeper(Protocol):
    """A tap that can stand down."""

    def off(self) -> bool:
        """Takes what stands in the loop away; False where it cannot."""

    def on(self) -> None:
        """Puts it back; nothing happens where it stands already."""


class Rests:
    """Says when to rest, and what rested steps are made of."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self.allowed = False
        """Never where each step's loss is compared, and where other threads step too."""
        self.sleepers: list[Sleeper] = []
        self.busy: list[Callable[[], bool]] = []
        """Whether somebody needs the taps now."""
        self.usual: Usual | None = None
        self.steps: SimpleQueue[Any] = SimpleQueue()
        """Optimizers that have stepped in a rest, as torch tells it."""
        self.hear_steps: Callable[[], None] | None = None
        """Has optimizers' steps heard again; may be called on any thread."""
        self.rested, self.rested_ns = 0, 0
        """Steps, and their nanoseconds."""
        self._random = random.Random(0)
        self._sleep_at = self._wake_at = 0
        self._slept_at, self._awake = 0, FULL
        self._pause = FIRST_PAUSE
        self._step_ns = 0.0
        self._odd = False

    # ---- what steps are made of ---------------------------------------------------------------------------------

    def begin(self, codes: Sequence[Any], phases: Sequence[int]) -> None:
        """A rhythm was found."""
        if self.usual is not None and self.usual.same(codes, phases):
            return
        self.usual = Usual(codes, phases) if self.allowed else None
        self._sleep_at, self._wake_at = max(self._sleep_at, self._pulse.count + FULL, FIRST_STEPS), 0

    def learn(self, spent: Rows) -> None:
        """Steps were timed in full; `spent`: ns of each event."""
        if self.usual is not None and self.usual.possible:
            self._step_ns = float(spent.sum()) / len(spent)
            if self._step_ns <= SHORT_NS:
                self.usual.learn(spent)

    def told(self, row: Sequence[float]) -> None:
        """The ledger has written a step's row."""
        if self._odd and self.usual is not None:
            self.usual.told(row)
        self._odd = False

    # ---- when -------------------------------------------------------------------------------------------------------

    def block(self, most: int) -> int:
        """After how many steps it is asked again whether to rest, at most `most`."""
        if self.usual is None or not self.usual.possible or not self.sleepers or self._step_ns > SHORT_NS:
            return most
        return min(max(self._sleep_at - self._pulse.count, FULL), most)

    def due(self, ask_before: int) -> bool:
        """Whether to rest now; `ask_before`: the phase in which the loop asks for its batches."""
        usual = self.usual
        if usual is None or not self.allowed or not self.sleepers or not usual.possible or usual.known < FEWEST:
            return False
        if self._pulse.count < self._sleep_at or self._step_ns > SHORT_NS or ask_before != OTHER:
            return False
        return not any(one() for one in self.busy)

    def held_up(self) -> bool:
        """Whether a rest that an edge has ended would go on, but for somebody who needs the taps for a step more."""
        return self.left() > 0 and any(one() for one in self.busy)

    def off(self) -> bool:
        """The taps stand down; False where one could not, and all listen on."""
        self.stepped()
        for one in self.sleepers:
            if not one.off():
                self.on()
                self._sleep_at = self._pulse.count + FULL
                return False
        count = self._pulse.count
        self._slept_at = count
        if self._wake_at <= count:
            self._wake_at = count + self._varied(REST)
        return True

    def left(self) -> int:
        """Steps until all taps listen again."""
        return self._wake_at - self._pulse.count

    def on(self) -> None:
        """All taps listen."""
        for one in self.sleepers:
            one.on()

    def over(self) -> None:
        """A rest has lasted long enough: a block in full follows."""
        count, usual = self._pulse.count, self.usual
        self._sleep_at, self._wake_at = count + self._varied(FULL), 0
        if usual is not None and usual.rested_ns >= JUDGED_NS:
            far = usual.rested_far_ns / usual.rested_ns
            usual.rested_ns = usual.rested_far_ns = 0.0
            if far > usual.far_share() + UNLIKE:
                self._sleep_at, self._pause = count + self._pause, 2 * self._pause

    def broken(self, cause: str) -> None:
        """The rhythm is broken; `cause`: an event that none has, empty where one has come out of its order."""
        if cause not in EDGES:
            count = self._pulse.count
            if self._pulse.resting:
                worth = count - self._slept_at >= SHORTEST
                self._awake = FULL if worth else min(2 * self._awake, SHORTEST * FULL)
            self._sleep_at, self._wake_at = max(self._sleep_at, count + self._awake), 0
        self._odd = not cause and not self._pulse.resting

    def has(self, code: int) -> bool:
        """Whether the event is one of a usual step's."""
        return self.usual is not None and self.usual.has(code)

    def mind(self) -> None:
        """Ends a rest in which steps go on though no batch is asked for; called now and then, on any thread."""
        if self._pulse.resting and self.steps.qsize() > MANY and self.hear_steps is not None:
            self.hear_steps()

    def over_for_good(self) -> None:
        """The taps are taken off: nothing is put back any more."""
        self.sleepers.clear()
        self.busy.clear()
        self.hear_steps = None

    def stepped(self) -> list[int]:
        """Ids of the optimizers that have stepped, from the list that torch writes; it is empty then."""
        found = []
        try:
            while True:
                found.append(id(self.steps.get_nowait()))
        except Empty:
            return found

    def _varied(self, steps: int) -> int:
        return round(steps * self._random.uniform(1 - _VARIED, 1 + _VARIED))

    def said(self) -> str:
        """A sentence on how many steps were timed in all their parts; empty where nearly all were."""
        count = self._pulse.count
        if not self.rested or self.rested < WORTH_SAYING * count:
            return ""
        took = formatting.seconds(self.rested_ns / self.rested * 1e-9)
        part = formatting.share((count - self.rested) / count)
        return (
            f"Steps of {took}: {part} of them were timed in every phase. Of the others, the wait, the "
            "total and the samples were measured; their phases are taken from the timed steps."
        )

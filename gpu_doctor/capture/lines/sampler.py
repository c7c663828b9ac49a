"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.

The whole way from the cell down to the line is kept: a metric between the forward and the backward is told from the
loss, and a second forward from the one that is trained on, by the statement of the training step that called it (see
`gpu_doctor.cell.unused_work`).

In a rest of the taps (see `gpu_doctor.capture.rests`) it is known whether the thread waits for a batch, and not more: a
line takes the phases in which it was seen while all was heard.
"""

from __future__ import annotations

import linecache
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from gpu_doctor.capture.lines.places import MOST_THROUGH, Place, Places, within_torch
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.cell import loop_rows, trains_nothing
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.steps import DATA_WAIT, FORWARD, LOSS, NO_GRAD, OTHER, PHASE_COUNT, PHASE_NAMES

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 120

Way: TypeAlias = "tuple[tuple[str, int], ...]"
"""File and line of every frame of the user's, innermost first."""
_OF_STEPS: Final = (FORWARD, NO_GRAD, LOSS, OTHER)
"""Phases in which it is asked whether a line trains anything."""
_PHASES: Final = tuple(code for code in range(PHASE_COUNT) if code != DATA_WAIT)


class _Seen(NamedTuple):
    """Where a look fell."""

    place: Place
    through: Way
    """Empty in phases of which nothing of it is asked."""


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.perf_counter) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, clock
        self._seen: dict[tuple[_Seen, int], float] = {}
        self._resting: dict[_Seen, list[float]] = {}
        """Seconds of looks in rests outside of the wait, with torch on the stack and without."""
        self._total = 0.0
        self.looks = 0
        """How often the running loop was looked at."""
        self._before: float | None = None
        self._places = Places()
        self._texts: tuple[dict[str, str], dict[Way, tuple[str, bool]]] = {}, {}

    def look(self) -> None:
        """One look; nothing before the loop began and nothing after it ended."""
        now, before = self._clock(), self._before
        ledger = self._recorder.ledger
        if not ledger.started:
            return
        self._before = now
        if before is None:
            return
        self.looks += 1
        phase, resting = ledger.phase_now(), ledger.pulse.resting
        stack = stack_of(self._recorder.thread)
        frame = stack[0] if stack else None
        place = self._places.of(frame)
        through = self._places.through(frame) if place is not None and phase in _OF_STEPS else ()
        if ledger.phase_now() != phase:  # on a busy machine the thread went on meanwhile
            place = None
        if resting:
            ledger.steady.rests.mind()
            if phase == OTHER and place is not None and len(self._resting) < MOST_LINES:
                seconds = self._resting.setdefault(_Seen(place, through), [0.0, 0.0])
                seconds[within_torch(frame)] += now - before
                return
        self._total += now - before
        if place is not None:
            key = _Seen(place, through), phase
            if len(self._seen) < MOST_LINES or key in self._seen:
                self._seen[key] = self._seen.get(key, 0.0) + now - before

    def costs(self) -> tuple[LineCost, ...]:
        """The dearest lines so far, dearest first; empty before anything was seen."""
        seen, total = self._all()
        if total <= 0:
            return ()
        texts, told_of = self._known({file for _, through, _ in seen for file, _ in through})
        found: dict[LineCost, float] = {}
        for (place, through, phase), seconds in seen.items():
            told = told_of.get(through)
            if told is None:
                told = told_of[through] = _asked(through, texts)
            cost = LineCost(
                *(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip()),
                phase=PHASE_NAMES[phase],
                share=0.0,
                in_torch=place.in_torch,
                before_backward=phase == LOSS,
                no_grad=phase == NO_GRAD,
                beside=told[0],
                looped=phase == LOSS and told[1],
            )
            found[cost] = found.get(cost, 0.0) + seconds / total
        dearest = sorted(found.items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(replace(cost, share=share) for cost, share in dearest)

    def _known(self, files: set[str]) -> tuple[dict[str, str], dict[Way, tuple[str, bool]]]:
        """The texts of all files passed through, and what they have told so far: anew where there are more of them."""
        if not files <= self._texts[0].keys():
            self._texts = {file: "".join(linecache.getlines(file)) for file in sorted(files)}, {}
        return self._texts

    def _all(self) -> tuple[dict[tuple[Place, Way, int], float], float]:
        """Seconds by line, way to it and phase, those of rests among them, and their sum.

        A line that was never seen but in rests is the loop's own Python where torch is not on its stack; else nobody
        knows what it was: its looks are left out. One that was seen, but not on the way that a look in a rest took,
        has of the phases of steps those that the nearest caller on this way was seen in: a line of a forward that runs
        twice a step.
        """
        heard, total = self._seen.copy(), self._total
        seen = {(place, through, phase): seconds for ((place, through), phase), seconds in heard.items()}
        known_of: dict[_Seen | Place | Way, dict[int, float]] = {}
        for (at, phase), seconds in heard.items():
            keys: list[_Seen | Place | Way] = [at, at.place]
            keys += [at.through[above:] for above in range(1, len(at.through))]
            for key in keys if phase in _PHASES else ():
                of = known_of.setdefault(key, {})
                of[phase] = of.get(phase, 0.0) + seconds
        for (place, through), (own_s, torch_s) in self._resting.copy().items():
            known = known_of.get(_Seen(place, through)) or known_of.get(place)
            known = known or known_of.get(place._replace(in_torch=not place.in_torch))
            if known and through[1:]:
                ways = (known_of.get(through[above:]) for above in range(1, len(through)))
                nearest = next((one for one in ways if one), {})
                own = {of: seconds for of, seconds in known.items() if of in nearest or of not in _OF_STEPS}
                known = own or nearest
                if not known:
                    continue
            if not known:
                known, torch_s = {OTHER: 1.0}, 0.0
            whole = sum(known.values())
            for phase, seconds in known.items():
                if seconds and own_s + torch_s:
                    row = place, through if phase in _OF_STEPS else (), phase
                    seen[row] = seen.get(row, 0.0) + (own_s + torch_s) * seconds / whole
            total += own_s + torch_s
        return seen, total


def _asked(through: Way, texts: dict[str, str]) -> tuple[str, bool]:
    """As `_told`; of a text that no parser gets through, nothing is told."""
    try:
        return _told(through, texts)
    except (RecursionError, MemoryError, ValueError):
        return "", False


def _told(through: Way, texts: dict[str, str]) -> tuple[str, bool]:
    """Whether the innermost statement of a step, or one of a forward in it, trains nothing, as `LineCost.beside`
    says; and whether the way to it leads through a loop inside of the step."""
    looped, others = False, tuple(texts.values())
    for file, line in through:
        looped = looped or line in loop_rows(texts[file])
        told = trains_nothing(texts[file], line, others)
        if told == "model" and len(through) == MOST_THROUGH:
            return "", False  # the step itself was not reached
        if told is not None:
            return told, looped
    return "", False

"""Which lines of the user's code the wall-clock goes to: stack samples of the training thread, taken by the poller.

A look at the stack finds the innermost frame that is the user's (the cell, its functions, a Dataset's `__getitem__`,
a module of the project); frames of installed libraries fold into the line that called them. Every look stands for the
time since the look before, so that the poller may slow down without bending the shares.

Nothing is read off the text of a line. What a look tells besides the line was measured: the phase that the step clock
was in, whether an operator of torch could have been running, and whether a generator of the user's was.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import replace
from typing import Final, NamedTuple

from gpu_doctor.capture.found import Look, Seen
from gpu_doctor.capture.lines.kernel import Kernel
from gpu_doctor.capture.lines.places import Place, Places
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import AFTER, BEFORE, LineCost
from gpu_doctor.recording.steps import BACKWARD, FORWARD, LOSS, NO_GRAD, OPTIMIZER, PHASE_NAMES

MOST_LINES: Final = 4096
SHOWN_LINES: Final = 120
SHOWN_AROUND: Final = 5
KEPT_LOCK: Final = 0.9
"""Of a switch interval: a look that came so much later than the promptest one met a thread that did not let Python's
lock go by itself, as torch's operators do when they begin. The promptest look tells how long the machine takes to wake
a thread."""
_TRAINS: Final = (FORWARD, NO_GRAD, LOSS, BACKWARD, OPTIMIZER)


class _Look(NamedTuple):
    """What a look found."""

    place: Place
    outside_torch: bool
    generators: tuple[Place, ...]
    """The user's generators that ran, innermost first."""


class LineSampler:
    """Adds up what the looks saw; `look` is called on the poller's thread."""

    def __init__(self, recorder: Recorder) -> None:
        """Looks at the recorder's training thread."""
        self._recorder, self._clock = recorder, recorder.clock
        self._seen: dict[tuple[_Look, int, bool], float] = {}
        self._total = 0.0
        self._warm = False
        """A look fell into a later step than the first, which is warm-up: what was seen there is forgotten."""
        self.looks = 0
        """How often the running loop was looked at."""
        self._promptest_s = float("inf")
        """The least that a look was late, without waiting for a core."""
        self._early: dict[Place, float] = {}
        """Seconds by line, before the loop began."""
        self._before: int | None = None
        self._places = Places()
        self._kernel = Kernel()
        recorder.listeners.hear_looks(self.placed)

    def look(self, late_s: float = 0.0) -> None:
        """One look: what the thread is doing there, the step clock finds out when it comes to that time.

        Args:
            late_s: seconds by which it comes later than it was due; 0 where it was not due at a certain time.
        """
        begin, before = self._clock(), self._before
        self._before = begin
        stack = stack_of(self._recorder.thread)
        frame = stack[0] if stack else None
        place = self._places.of(frame)
        pulled = self._places.generators(frame) if place is not None else ()
        early = None if self._recorder.started() else self._places.before_loop(frame)
        # The kernel is asked below, which gives Python's lock away: until then no frame, and none of what the user's
        # code lets go, may be held.
        del stack, frame
        end = self._clock()
        queued_s = self._kernel.queued_s()  # for a core: that says nothing about Python's lock
        if late_s and not queued_s:
            self._promptest_s = min(self._promptest_s, late_s)
        if before is None:
            return
        kept = late_s - queued_s - self._promptest_s >= KEPT_LOCK * sys.getswitchinterval()
        aside = kept or self._kernel.sleeps(self._recorder.thread)
        found = None if place is None else _Look(place, aside, pulled)
        # A thread that has to let the lock go stands still until ours runs. Where it stands then tells nothing of the
        # phase in which the look was due, if that has ended.
        since = begin - round(late_s * 1e9) if kept else begin
        look = Look(since, end, (found, (begin - before) * 1e-9))
        if self._recorder.started():
            self._recorder.log.looks.append(look)
        elif early is not None:
            self._early[early] = self._early.get(early, 0.0) + look.seen[1]

    def placed(self, one: Seen) -> None:
        """It is known where the loop was at a look; phase -1: it went on to another phase meanwhile."""
        found, seconds = one.seen
        if not (one.first or self._warm):
            self._warm, self._total, self.looks = True, 0.0, 0
            self._seen = {}
        self.looks += 1
        self._total += seconds
        if found is None or one.phase < 0:
            return
        key = found, one.phase, one.feeding
        if len(self._seen) < MOST_LINES or key in self._seen:
            self._seen[key] = self._seen.get(key, 0.0) + seconds

    def costs(self) -> tuple[LineCost, ...]:
        """The dearest lines so far, dearest first; empty before anything was seen."""
        seen, total = self._seen.copy(), self._total
        if total <= 0:
            return ()
        # A generator in which the loop itself stands (a training function that yields its losses) is not pulled from.
        loops = {one for (what, phase, _), _ in seen.items() if phase in _TRAINS for one in what.generators}
        found: dict[LineCost, float] = {}
        for (what, phase, feeding), seconds in seen.items():
            place = what.place
            cost = LineCost(
                *(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip()),
                phase=PHASE_NAMES[phase],
                share=0.0,
                in_torch=place.in_torch,
                outside_torch=what.outside_torch,
                before_backward=phase == LOSS,
                before_forward=feeding,
                no_grad=phase == NO_GRAD,
                pulled=any(one not in loops for one in what.generators),
            )
            found[cost] = found.get(cost, 0.0) + seconds / total
        dearest = sorted(found.items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(replace(cost, share=share) for cost, share in dearest)

    def around(self) -> tuple[LineCost, ...]:
        """The dearest lines before the first step and, once the run is over, after the last; see `Recording.around`."""
        late: dict[Place, float] = {}
        if self._recorder.over.is_set():
            for look in tuple(self._recorder.log.looks):  # no event came after them
                seen, seconds = look.seen
                if seen is not None:
                    late[seen.place] = late.get(seen.place, 0.0) + seconds
        whole_s = max(self._recorder.elapsed_s(), 1e-9)
        return tuple(
            LineCost(
                *(one.file, one.line, one.function, linecache.getline(one.file, one.line).strip()),
                phase=phase,
                share=seconds / whole_s,
                in_torch=one.in_torch,
            )
            for phase, places in ((BEFORE, self._early.copy()), (AFTER, late))
            for one, seconds in sorted(places.items(), key=lambda item: -item[1])[:SHOWN_AROUND]
        )

    def close(self) -> None:
        """No look comes any more."""
        self._kernel.close()

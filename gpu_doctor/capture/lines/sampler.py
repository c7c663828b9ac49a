"""Finds the lines of the user's code that take the wall-clock, by stack samples of the training thread.

The poller takes the samples. A sample finds the innermost frame of the user's code (the cell, its functions, the
`__getitem__` of a Dataset, a module of the project); frames of installed libraries count for the line that called them.
Each sample stands for the time since the one before, so that the poller may slow down without distorting the shares.

Nothing is guessed from the text of a line. A sample measures, besides the line: the phase that the step clock was in,
whether an operator of torch could have been running, and whether a generator of the user's was.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import replace
from typing import Final, NamedTuple

from gpu_doctor.capture.found import PlacedSample, StackSample
from gpu_doctor.capture.lines.kernel import Kernel
from gpu_doctor.capture.lines.places import Place, Places
from gpu_doctor.capture.lines.stacks import stack_of
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.recording import AFTER, BEFORE, LineCost
from gpu_doctor.recording.steps import BACKWARD, FORWARD, LOSS, NO_GRAD, OPTIMIZER, PHASE_NAMES

MOST_LINES: Final = 4096
"""Most combinations of line and phase whose time is stored."""
SHOWN_LINES: Final = 120
"""Most lines that are reported for the loop."""
SHOWN_AROUND: Final = 5
"""Most lines that are reported before the loop, and after it."""
HELD_LOCK: Final = 0.9
"""Share of a switch interval: a sample that came later than the promptest one by this much had to wait for Python's
lock. The sampled thread did not release the lock by itself, as torch's operators do when they begin. The promptest
sample shows how long the machine takes to wake a thread."""
_TRAINS: Final = (FORWARD, NO_GRAD, LOSS, BACKWARD, OPTIMIZER)


class _Sampled(NamedTuple):
    """What the user's code was doing at a stack sample."""

    place: Place
    outside_torch: bool
    """True if no operator of torch was running: the thread held Python's lock, or slept."""
    generators: tuple[Place, ...]
    """The user's generators that were running, innermost first."""


class LineSampler:
    """Takes stack samples of the training thread and adds up the time of each line."""

    def __init__(self, recorder: Recorder) -> None:
        """Prepares to sample the training thread of `recorder`; `placed` gets each sample back with its phase."""
        self._recorder, self._clock = recorder, recorder.clock
        self._seen: dict[tuple[_Sampled, int, bool], float] = {}
        self._total = 0.0
        self._warm = False
        """True once a sample came after the first step; samples of that step are dropped, as it is warm-up."""
        self.samples = 0
        """Number of samples of the running loop."""
        self._promptest_s = float("inf")
        """Smallest delay of a sample that did not wait for a core, in seconds."""
        self._early: dict[Place, float] = {}
        """Sampled seconds of each line before the loop began."""
        self._before: int | None = None
        self._places = Places()
        self._kernel = Kernel()
        recorder.listeners.on_stack_samples(self.placed)

    def sample(self, late_s: float = 0.0) -> None:
        """Takes one stack sample, on the poller's thread; the step clock assigns it to a phase later.

        Args:
            late_s: delay of the sample after its due time, in seconds; 0 if it had no due time.
        """
        begin, before = self._clock(), self._before
        self._before = begin
        stack = stack_of(self._recorder.thread)
        frame = stack[0] if stack else None
        place = self._places.of(frame)
        pulled = self._places.generators(frame) if place is not None else ()
        early = None if self._recorder.started() else self._places.before_loop(frame)
        # Reading from the kernel below releases Python's lock: by then we must hold no frame, so that objects which the
        # user's code drops are not kept alive.
        del stack, frame
        end = self._clock()
        queued_s = self._kernel.queued_s()  # a wait for a core says nothing about Python's lock
        if late_s and not queued_s:
            self._promptest_s = min(self._promptest_s, late_s)
        if before is None:
            return
        lock_held = late_s - queued_s - self._promptest_s >= HELD_LOCK * sys.getswitchinterval()
        outside = lock_held or self._kernel.sleeps(self._recorder.thread)
        found = None if place is None else _Sampled(place, outside, pulled)
        # A thread that has to release the lock stands still until ours has run. Its place then says nothing about the
        # phase in which the sample was due, if that phase has ended.
        since = begin - round(late_s * 1e9) if lock_held else begin
        stack_sample = StackSample(since, end, (found, (begin - before) * 1e-9))
        if self._recorder.started():
            self._recorder.log.stack_samples.append(stack_sample)
        elif early is not None:
            self._early[early] = self._early.get(early, 0.0) + stack_sample.seen[1]

    def placed(self, sample: PlacedSample) -> None:
        """Adds a sample whose phase is known; phase -1: the phase changed during the sample."""
        found, seconds = sample.seen
        if not (sample.first or self._warm):
            self._warm, self._total, self.samples = True, 0.0, 0
            self._seen = {}
        self.samples += 1
        self._total += seconds
        if found is None or sample.phase < 0:
            return
        key = found, sample.phase, sample.feeding
        if len(self._seen) < MOST_LINES or key in self._seen:
            self._seen[key] = self._seen.get(key, 0.0) + seconds

    def costs(self) -> tuple[LineCost, ...]:
        """Returns the most expensive lines so far, largest share first; empty before the first sample."""
        seen, total = self._seen.copy(), self._total
        if total <= 0:
            return ()
        # A generator that contains the loop itself (a training function that yields its losses) delivers no data.
        loops = {
            generator for (sampled, phase, _), _ in seen.items() if phase in _TRAINS for generator in sampled.generators
        }
        found: dict[LineCost, float] = {}
        for (sampled, phase, feeding), seconds in seen.items():
            place = sampled.place
            cost = LineCost(
                *(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip()),
                phase=PHASE_NAMES[phase],
                share=0.0,
                in_torch=place.in_torch,
                outside_torch=sampled.outside_torch,
                before_backward=phase == LOSS,
                before_forward=feeding,
                no_grad=phase == NO_GRAD,
                pulled=any(generator not in loops for generator in sampled.generators),
            )
            found[cost] = found.get(cost, 0.0) + seconds / total
        dearest = sorted(found.items(), key=lambda item: -item[1])[:SHOWN_LINES]
        return tuple(replace(cost, share=share) for cost, share in dearest)

    def around(self) -> tuple[LineCost, ...]:
        """Returns the costliest lines before the first step and, after the run, after the last (`Recording.around`)."""
        late: dict[Place, float] = {}
        if self._recorder.over.is_set():
            for sample in tuple(self._recorder.log.stack_samples):  # samples that no later event assigned to a phase
                seen, seconds = sample.seen
                if seen is not None:
                    late[seen.place] = late.get(seen.place, 0.0) + seconds
        whole_s = max(self._recorder.elapsed_s(), 1e-9)
        return tuple(
            LineCost(
                *(place.file, place.line, place.function, linecache.getline(place.file, place.line).strip()),
                phase=phase,
                share=seconds / whole_s,
                in_torch=place.in_torch,
            )
            for phase, places in ((BEFORE, self._early.copy()), (AFTER, late))
            for place, seconds in sorted(places.items(), key=lambda item: -item[1])[:SHOWN_AROUND]
        )

    def close(self) -> None:
        """Closes the kernel's files: no sample is taken any more."""
        self._kernel.close()

"""Computes the device's columns of a step from the marks that the taps have put into the device's queue.

Marks on the compute stream cut a loop into intervals that add up, over micro-batches too. For each mark two times are
known: when the host put it, and when the device passed it. The difference is the *lag*: the work that the device still
had when the host put the mark. While work remains the device does not idle, so it cannot have idled after the host put
an interval's second mark. An interval from mark `a` to mark `b` has three parts:

- copies: the time that the marks of copies cover;
- idle at most: the rest of the time from `a` on the device to `b` on the host;
- busy: the remaining time.

Between the phases of a step "idle at most" counts as idle: there the host waited for a batch, or computed. Within
forward, loss, backward and optimizer the host launches work all the time. There, a device that is behind at the end has
worked since the first launch; for a device that has caught up (`CAUGHT_UP_S`) the idle time is unknown.

Host and device clock are tied when it is known how far the device is: a mark that is put while the compute stream is
empty has no lag, and the lag of an earlier mark that was found passed was at most its age. The tie is renewed each
time, as the clocks drift by up to some ten microseconds a second. Nothing here ever waits: a step is read once the
device has passed its last mark. `windows.py` decides which steps are marked.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from gpu_doctor.capture import events
from gpu_doctor.capture.gpu.clock import SURE_NS, Put, QuietClock
from gpu_doctor.capture.gpu.intervals import Interval, Tally, Window
from gpu_doctor.capture.step_table import StepTable
from gpu_doctor.recording.steps import BACKWARD, DATA_WAIT, FORWARD, LOSS, OPTIMIZER, OTHER, SYNC

ANCHOR_S: Final = 2.0
"""Longest validity of a tie, in seconds. A device that never came near its newest marks for longer was behind."""
_BEGINS: Final = {
    events.NEXT: DATA_WAIT,
    events.OPENING: DATA_WAIT,
    events.CALL: FORWARD,
    events.GRADIENT: BACKWARD,
    events.STEP: OPTIMIZER,
    events.REPLAY: LOSS,
    events.WAITING: SYNC,
}
"""Phase of the host that begins at a mark, by the code of the mark's event."""
_ENDS: Final = {
    events.BATCH: DATA_WAIT,
    events.EXHAUSTED: DATA_WAIT,
    events.OPENED: DATA_WAIT,
    events.CALLED: FORWARD,
    events.BACKED: BACKWARD,
    events.STEPPED: OPTIMIZER,
    events.REPLAYED: LOSS,
    events.SYNCED: SYNC,
}
"""Phase of the host that ends at a mark, by the code of the mark's event."""
MOST_ASIDE: Final = 256
"""Copies on other streams that are remembered until they are over."""
_NAN: Final = float("nan")


class Marked(NamedTuple):
    """A mark, and the event that it was put for."""

    code: int
    """Code of the event (CALL for every forward)."""
    put: Put
    own_ns: int
    """Time that gpu_doctor had taken on the training thread by then, in ns."""
    evaluation: bool = False


class _Ended(NamedTuple):
    """A step whose marks the device has not all passed yet."""

    row: int
    generation: int
    number: int
    """Number of the step in the run."""
    before: Marked | None
    """Last mark of the step before; None = that step was not marked."""
    cuts: list[Marked]
    """Marks on the compute stream; the last one ends the step."""
    copies: list[tuple[Marked, Marked, bool]]
    """Begin and end of each copy; True if it ran on another stream than the compute stream."""


class MarkReader:
    """Reads the device times of ended steps, as the device passes their marks."""

    def __init__(self, clock: QuietClock, table: StepTable, host: Callable[[], int] = time.perf_counter_ns) -> None:
        """Args: clock: the device's clock. table: the run's steps. host: host clock in ns, for the cost of readings."""
        self.clock, self._table, self._host = clock, table, host
        self._pending: deque[_Ended] = deque()
        self._before: Marked | None = None
        """Last mark of the newest ended step, if that step was marked."""
        self._uses: dict[int, int] = {}
        """Number of remaining uses of each mark, by its id."""
        self._tie = _Tie()
        self._phases: list[int] = []
        """Phases of the host, outermost first, at the end of the step that was read last."""
        self._own_s = 0.0
        """Seconds of our own work that may still make the device wait, see `Tally.own_s`."""
        self._aside: list[tuple[Marked, Marked]] = []
        """Begin and end of copies on other streams: later steps may have to wait for them."""
        self._since: tuple[Marked, int] | None = None
        """Last mark and number of the newest step that was read, across steps that are not marked."""

    def ended(self, row: int, marks: list[Marked], number: int) -> None:
        """Adds a step that has ended, to be read later.

        Args:
            row: the step's row in the table.
            marks: all marks of the step, in order.
            number: the step's number in the run.
        """
        cuts, copies = _cuts_and_copies(marks)
        if not cuts or any(marked.put.mark is None for marked in marks):
            self._free(marks)
            self.rest()
            return
        before, self._before = self._before, cuts[-1]
        used = [*cuts, *(mark for begin, end, _ in copies for mark in (begin, end))]
        self._add_uses([*used, cuts[-1]])  # the next step begins with the last mark
        needed = {id(marked) for marked in used}
        self._free([marked for marked in marks if id(marked) not in needed])  # marks of copies that raised
        self._pending.append(_Ended(row, self._table.generation, number, before, cuts, copies))

    def rest(self) -> None:
        """Notes that a step without marks has ended: the next marked step does not follow a marked one."""
        before, self._before = self._before, None
        if before is not None:
            self._pending.append(_Ended(-1, 0, 0, before, [], []))

    def read(self) -> None:
        """Reads the steps whose marks the device has passed by now."""
        begin = self._host()
        if self._pending and self.clock.ready():
            while self._pending and self._passed(self._pending[0]):
                self._read_step(self._pending.popleft())
        self.clock.spent_ns += self._host() - begin

    def finish(self) -> None:
        """Reads the last steps that the device has passed and frees the marks, at the run's end."""
        self.read()
        self._release([mark for pair in self._aside for mark in pair])
        self._aside.clear()
        if self._since is not None:
            self._release([self._since[0]])
            self._since = None

    def _passed(self, step: _Ended) -> bool:
        """True if the device has passed the step's last mark."""
        return not step.cuts or self.clock.done(step.cuts[-1].put.mark)

    def _read_step(self, step: _Ended) -> None:
        """Reads a step that the device has passed into its row, and gives its marks back."""
        if not step.cuts:
            self._phases.clear()
            self._tie.lose()
        elif step.before is None or not self._add(step):
            self._release([mark for begin, end, aside in step.copies if aside for mark in (begin, end)])
            self._phases = _phases_after([], step.cuts)
            self._tie.lose()
            if self._since is None:
                self._store_since(step)
        self._release([*step.cuts, *(mark for begin, end, aside in step.copies if not aside for mark in (begin, end))])
        if step.before is not None:
            self._release([step.before])

    def _add(self, step: _Ended) -> bool:
        """Adds a step's device values to its row; returns False if the marks cannot be compared."""
        before, clock = step.before, self.clock
        assert before is not None
        copy_marks = [mark for begin, end, aside in step.copies if not aside for mark in (begin, end)]
        marks = sorted([*step.cuts, *copy_marks], key=lambda mark: mark.put.at_ns)
        at = {id(mark): clock.seconds(before.put.mark, mark.put.mark) for mark in marks}
        if any(seconds != seconds for seconds in at.values()):
            return False
        self._aside += [(begin, end) for begin, end, aside in step.copies if aside]
        windows = [Window(at[id(begin)], at[id(end)], False) for begin, end, aside in step.copies if not aside]
        windows += [window for pair in self._aside if (window := self._window(before, *pair)) is not None]
        tally = Tally(windows, self._own_s)
        cuts = {id(cut) for cut in step.cuts}
        self._tie.begin([(before, 0.0), *((mark, at[id(mark)]) for mark in marks)])
        last, last_s, phases = before, 0.0, self._phases
        for mark in marks:
            at_s = at[id(mark)]
            lag_s = self._tie.lag(mark, at_s)
            if id(mark) in cuts:
                tally.add(_interval(last, mark, phases, last_s, at_s, lag_s))
                phases = _phases_after(phases, [mark])
                last, last_s = mark, max(at_s, last_s)  # another stream may have passed its mark earlier
        end_s = at[id(last)]
        self._tie.moved(end_s)
        self._phases = phases
        self._table.add_device(step.row, step.generation, (*tally.values(), *self._since_values(step)))
        self._own_s = tally.own_s
        self._release_side_copies(before, end_s)
        return True

    def _window(self, before: Marked, begin: Marked, end: Marked) -> Window | None:
        """Returns the time of a copy on another stream, in device seconds since the mark `before`.

        The end is infinite while the copy is running; None if the copy has not begun, or the marks cannot be compared.
        """
        clock, zero = self.clock, before.put.mark
        if not clock.done(begin.put.mark):
            return None
        begin_s = clock.seconds(zero, begin.put.mark)
        end_s = clock.seconds(zero, end.put.mark) if clock.done(end.put.mark) else float("inf")
        return Window(begin_s, end_s, True) if begin_s == begin_s and end_s == end_s else None

    def _release_side_copies(self, before: Marked, end_s: float) -> None:
        """Drops copies on other streams that ended before the step's end, and the oldest others above MOST_ASIDE.

        Args:
            before: last mark of the step before.
            end_s: the step's end, in device seconds after `before`.
        """
        unfinished = []
        for pair in self._aside:
            window = self._window(before, *pair)
            if self.clock.done(pair[1].put.mark) and (window is None or window.end_s <= end_s):
                self._release(pair)
            else:
                unfinished.append(pair)
        for pair in unfinished[:-MOST_ASIDE]:
            self._release(pair)
        self._aside = unfinished[-MOST_ASIDE:]

    def _since_values(self, step: _Ended) -> tuple[float, float]:
        """Returns device seconds and number of steps since the newest step that was read before; NaN if unknown."""
        since = self._since
        end = step.cuts[-1]
        if since is None:
            self._store_since(step)
            return _NAN, _NAN
        seconds = self.clock.seconds(since[0].put.mark, end.put.mark)
        if seconds != seconds:  # on another device: the next step on this one counts from the old mark
            return _NAN, _NAN
        self._store_since(step)
        return seconds, float(step.number - since[1])

    def _store_since(self, step: _Ended) -> None:
        """Makes a step the one that later steps' times count from."""
        self._add_uses([step.cuts[-1]])
        before, self._since = self._since, (step.cuts[-1], step.number)
        if before is not None:
            self._release([before[0]])

    def _add_uses(self, marks: Iterable[Marked]) -> None:
        """Counts one more use of each mark."""
        for mark in marks:
            key = id(mark.put)
            self._uses[key] = self._uses.get(key, 0) + 1

    def _release(self, marks: Iterable[Marked]) -> None:
        """Counts one use less of each mark, and gives unused marks back to the pool."""
        for mark in marks:
            key = id(mark.put)
            remaining = self._uses.pop(key, 1) - 1
            if remaining > 0:
                self._uses[key] = remaining
            else:
                self.clock.free(mark.put.mark)

    def _free(self, marks: Iterable[Marked]) -> None:
        """Gives marks back to the pool."""
        self.clock.free(*(mark.put.mark for mark in marks))


class _Tie:
    """Ties the device's clock to the host's. Device seconds count from the begin of the step that is being read."""

    def __init__(self) -> None:
        self._offset_s: float | None = None
        """Device time minus host time of a mark without lag, in seconds; None = unknown."""
        self._anchored_ns = 0
        """Host time at which the offset was last measured, in ns."""
        self._zero_ns = 0
        """Host time from which the offset counts, in ns, to keep the numbers small."""
        self._times: dict[int, tuple[Marked, float]] = {}
        """Marks of the step that is being read, and their device times in seconds, by the id of the device's mark."""

    def lose(self) -> None:
        """Forgets the tie, as the chain of marks is broken."""
        self._offset_s = None

    def begin(self, marks: Sequence[tuple[Marked, float]]) -> None:
        """Starts a step; if the clocks are not tied, its first suitable mark ties them for the whole step.

        Args:
            marks: last mark of the step before and the step's own marks, with their device times in seconds.
        """
        zero_ns = marks[0][0].put.at_ns
        if self._offset_s is not None and (zero_ns - self._anchored_ns) * 1e-9 > ANCHOR_S:
            self._offset_s = None
        self._times = {id(mark.put.mark): (mark, at_s) for mark, at_s in marks}
        if self._offset_s is None:
            self._zero_ns = zero_ns
            for mark, at_s in marks:
                self._renew(mark, at_s)
                if self._offset_s is not None:
                    break

    def lag(self, cut: Marked, at_s: float) -> float | None:
        """Returns the device work that remained when the host put a mark, in seconds; None if unknown."""
        self._renew(cut, at_s)
        if self._offset_s is None:
            return None
        lag_s = at_s - self._host_s(cut) - self._offset_s
        if lag_s < 0:  # no mark is passed before it was put: the clocks have drifted by this much
            self._offset_s += lag_s
        return max(lag_s, 0.0)

    def moved(self, end_s: float) -> None:
        """Moves the origin of device seconds to the begin of the next step, `end_s` later."""
        if self._offset_s is not None:
            self._offset_s -= end_s

    def _renew(self, cut: Marked, at_s: float) -> None:
        """Ties the clocks if the query at a mark showed an empty stream, or an earlier mark that was passed."""
        if cut.put.idle:
            self._offset_s, self._anchored_ns = at_s - self._host_s(cut), cut.put.at_ns
            return
        earlier, earlier_s = self._times.get(id(cut.put.passed), (None, 0.0))
        if earlier is None:
            return
        most_ns = cut.put.at_ns - earlier.put.at_ns
        if 0 <= most_ns <= SURE_NS:
            no_lag_s = earlier_s - self._host_s(earlier)
            self._offset_s = no_lag_s if self._offset_s is None else max(self._offset_s, no_lag_s - most_ns * 1e-9)
            self._anchored_ns = cut.put.at_ns

    def _host_s(self, cut: Marked) -> float:
        """Returns the host time of a mark, in seconds since `_zero_ns`."""
        return (cut.put.at_ns - self._zero_ns) * 1e-9


def _interval(
    last: Marked, cut: Marked, phases: Sequence[int], begin_s: float, end_s: float, lag_s: float | None
) -> Interval:
    """Returns the interval between two marks.

    Args:
        last: the first mark.
        cut: the second mark.
        phases: phases of the host after the first mark, outermost first.
        begin_s: device time of the first mark, in seconds.
        end_s: device time of the second mark, in seconds.
        lag_s: device work that remained at the second mark, in seconds; None if unknown.
    """
    loss = (last.code, cut.code) == (events.CALLED, events.GRADIENT) and not phases
    phase = LOSS if loss else phases[-1] if phases else OTHER
    if lag_s is None and phase == DATA_WAIT and cut.put.passed is last.put.mark:
        lag_s = 0.0  # a loader that launches work itself: all the time until then may have been idle
    host_s, own_s = cut.put.at_ns - last.put.at_ns, cut.own_ns - last.own_ns
    return Interval(phase, begin_s, end_s, max(host_s, 0) * 1e-9, lag_s, max(own_s, 0) * 1e-9, cut.evaluation)


def _cuts_and_copies(marks: Sequence[Marked]) -> tuple[list[Marked], list[tuple[Marked, Marked, bool]]]:
    """Separates a step's marks into those that cut it, and its copies (begin, end, on another stream)."""
    cuts: list[Marked] = []
    copies: list[tuple[Marked, Marked, bool]] = []
    begin: Marked | None = None
    for mark in marks:
        if mark.code == events.COPYING:
            begin = mark
        elif mark.code == events.COPIED:
            if begin is not None:
                copies.append((begin, mark, mark.put.aside))
            begin = None
        else:
            cuts.append(mark)
    return cuts, copies


def _phases_after(phases: list[int], cuts: Sequence[Marked]) -> list[int]:
    """Returns the phases of the host after these marks, outermost first; `phases` are those before."""
    for cut in cuts:
        if cut.code == events.NEXT or cut.evaluation:  # not all marks of an evaluation are stored
            phases = []
        if (phase := _BEGINS.get(cut.code)) is not None:
            phases = [*phases, phase]
        elif (phase := _ENDS.get(cut.code)) is not None and phase in phases:
            last = len(phases) - 1 - phases[::-1].index(phase)
            phases = phases[:last]
    return phases

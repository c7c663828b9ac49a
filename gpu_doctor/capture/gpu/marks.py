"""The device's columns of a step, from the marks that the taps have put into its queue.

Marks on the compute stream cut a loop into intervals that add up, over micro-batches too. Of each interval both clocks
are known: when the host came to its ends, and when the device did. What a mark's device time is later than its host
time is the *lag*: the work that the device had left when the host came by. The device cannot have idled after the host
had come to an interval's end and work was left, so an interval `a -> b` falls into three parts:

- copies: what the marks of copies cover of it;
- idle at most: the rest of the time from `a` on the device to `b` on the host;
- busy: the rest.

Between the phases of a step "idle at most" is taken for idle: the host waited for a batch there, or computed. Within
forward, loss, backward and optimizer the host launches all the time. There a device that is behind at the end has
worked since the first launch, and of one that has caught up (`CAUGHT_UP_S`) it is not known how long it idled.

The clocks are tied where it is known how far the device is: a mark that is put while the compute stream is empty has no
lag, and an earlier mark that was found to be passed had a lag no longer than it was old. The tie is renewed whenever
that is found, for the clocks drift by up to some ten microseconds a second. Nothing here ever waits: a step is read
when the device has passed its last mark. Which steps are marked at all, `windows.py` says.
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
"""So long a tie holds. A device that was found nowhere near its newest marks for longer than that was behind."""
_BEGINS: Final = {
    events.NEXT: DATA_WAIT,
    events.OPENING: DATA_WAIT,
    events.CALL: FORWARD,
    events.GRADIENT: BACKWARD,
    events.STEP: OPTIMIZER,
    events.REPLAY: LOSS,
    events.WAITING: SYNC,
}
"""What the host goes into at a mark,"""
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
"""and comes out of."""
MOST_ASIDE: Final = 256
"""Copies on other streams that are remembered until they are over."""
_NAN: Final = float("nan")


class Marked(NamedTuple):
    """A mark, and what it was put for."""

    code: int
    """Of the event (CALL for every forward)."""
    put: Put
    own_ns: int
    """What gpu_doctor has taken of the training thread by then, in all."""
    evaluation: bool = False


class _Ended(NamedTuple):
    """A step whose marks the device has not all passed yet."""

    row: int
    generation: int
    number: int
    """Of the step in the run."""
    before: Marked | None
    """The last mark of the step before; None = that one was not marked."""
    cuts: list[Marked]
    """Marks on the compute stream; the last one ends the step."""
    copies: list[tuple[Marked, Marked, bool]]
    """Begin and end of each copy, and whether it went by another stream than the compute stream."""


class MarkReader:
    """Reads steps that have ended, as the device passes their marks."""

    def __init__(self, clock: QuietClock, table: StepTable, host: Callable[[], int] = time.perf_counter_ns) -> None:
        """Args: clock: the device's. table: of the steps. host: ns, for what the readings cost."""
        self.clock, self._table, self._host = clock, table, host
        self._pending: deque[_Ended] = deque()
        self._before: Marked | None = None
        """The last mark of the step that ended last, if that one was marked."""
        self._uses: dict[int, int] = {}
        """How often each mark is still needed, by its id."""
        self._tie = _Tie()
        self._within: list[int] = []
        """What the host is in, outermost first, at the end of the step that was read last."""
        self._own_s = 0.0
        """See `Tally.own_s`."""
        self._aside: list[tuple[Marked, Marked]] = []
        """Copies on other streams: the next steps may have to wait for them."""
        self._since: tuple[Marked, int] | None = None
        """The end of the last step that was read, over steps that are not marked, and its number."""

    def ended(self, row: int, marks: list[Marked], number: int) -> None:
        """The step of this number, which had these marks, has ended and stands in `row` of the table."""
        cuts, copies = _sorted(marks)
        if not cuts or any(one.put.mark is None for one in marks):
            self._free(marks)
            self.rest()
            return
        before, self._before = self._before, cuts[-1]
        used = [*cuts, *(mark for begin, end, _ in copies for mark in (begin, end))]
        self._keep([*used, cuts[-1]])  # the next step begins with the last one
        kept = {id(one) for one in used}
        self._free([one for one in marks if id(one) not in kept])  # of copies that raised
        self._pending.append(_Ended(row, self._table.generation, number, before, cuts, copies))

    def rest(self) -> None:
        """The step that ends now is not marked: of the next that is, nothing is known of the one before."""
        before, self._before = self._before, None
        if before is not None:
            self._pending.append(_Ended(-1, 0, 0, before, [], []))

    def read(self) -> None:
        """Reads what the device has passed by now."""
        begin = self._host()
        if self._pending and self.clock.ready():
            while self._pending and self._passed(self._pending[0]):
                self._taken(self._pending.popleft())
        self.clock.spent_ns += self._host() - begin

    def finish(self) -> None:
        """Reads what the device has passed in the end; nothing is marked any more."""
        self.read()
        self._release([one for pair in self._aside for one in pair])
        self._aside.clear()
        if self._since is not None:
            self._release([self._since[0]])
            self._since = None

    def _passed(self, one: _Ended) -> bool:
        return not one.cuts or self.clock.done(one.cuts[-1].put.mark)

    def _taken(self, one: _Ended) -> None:
        """A step that the device has passed: its values go into its row, its marks back to the pool."""
        if not one.cuts:
            self._within.clear()
            self._tie.lose()
        elif one.before is None or not self._add(one):
            self._release([mark for begin, end, aside in one.copies if aside for mark in (begin, end)])
            self._within = _settled([], one.cuts)
            self._tie.lose()
            if self._since is None:
                self._kept_since(one)
        self._release([*one.cuts, *(mark for begin, end, aside in one.copies if not aside for mark in (begin, end))])
        if one.before is not None:
            self._release([one.before])

    def _add(self, one: _Ended) -> bool:
        """Adds a step's values to its row; false if the marks cannot be compared."""
        before, clock = one.before, self.clock
        assert before is not None
        beside = [mark for begin, end, aside in one.copies if not aside for mark in (begin, end)]
        marks = sorted([*one.cuts, *beside], key=lambda mark: mark.put.at_ns)
        at = {id(mark): clock.seconds(before.put.mark, mark.put.mark) for mark in marks}
        if any(seconds != seconds for seconds in at.values()):
            return False
        self._aside += [(begin, end) for begin, end, aside in one.copies if aside]
        windows = [Window(at[id(begin)], at[id(end)], False) for begin, end, aside in one.copies if not aside]
        windows += [window for pair in self._aside if (window := self._window(before, *pair)) is not None]
        tally = Tally(windows, self._own_s)
        cuts = {id(cut) for cut in one.cuts}
        self._tie.begin([(before, 0.0), *((mark, at[id(mark)]) for mark in marks)])
        last, last_s, within = before, 0.0, self._within
        for mark in marks:
            at_s = at[id(mark)]
            lag_s = self._tie.lag(mark, at_s)
            if id(mark) in cuts:
                tally.add(_interval(last, mark, within, last_s, at_s, lag_s))
                within = _settled(within, [mark])
                last, last_s = mark, max(at_s, last_s)  # another stream may have passed its mark earlier
        end_s = at[id(last)]
        self._tie.moved(end_s)
        self._within = within
        self._table.add_device(one.row, one.generation, (*tally.values(), *self._told_since(one)))
        self._own_s = tally.own_s
        self._done_aside(before, end_s)
        return True

    def _window(self, before: Marked, begin: Marked, end: Marked) -> Window | None:
        """When a copy on another stream was made, in device seconds from a mark on; one that goes on has no end."""
        clock, zero = self.clock, before.put.mark
        if not clock.done(begin.put.mark):
            return None
        begin_s = clock.seconds(zero, begin.put.mark)
        end_s = clock.seconds(zero, end.put.mark) if clock.done(end.put.mark) else float("inf")
        return Window(begin_s, end_s, True) if begin_s == begin_s and end_s == end_s else None

    def _done_aside(self, before: Marked, end_s: float) -> None:
        """Copies on other streams that were over when the step ended are needed no more."""
        left = []
        for pair in self._aside:
            window = self._window(before, *pair)
            if self.clock.done(pair[1].put.mark) and (window is None or window.end_s <= end_s):
                self._release(pair)
            else:
                left.append(pair)
        for pair in left[:-MOST_ASIDE]:
            self._release(pair)
        self._aside = left[-MOST_ASIDE:]

    def _told_since(self, one: _Ended) -> tuple[float, float]:
        """Device seconds and steps since the end of the last step that was read."""
        since = self._since
        end = one.cuts[-1]
        if since is None:
            self._kept_since(one)
            return _NAN, _NAN
        seconds = self.clock.seconds(since[0].put.mark, end.put.mark)
        if seconds != seconds:  # on another device: the next one here is told from where it was
            return _NAN, _NAN
        self._kept_since(one)
        return seconds, float(one.number - since[1])

    def _kept_since(self, one: _Ended) -> None:
        self._keep([one.cuts[-1]])
        before, self._since = self._since, (one.cuts[-1], one.number)
        if before is not None:
            self._release([before[0]])

    def _keep(self, marks: Iterable[Marked]) -> None:
        for one in marks:
            key = id(one.put)
            self._uses[key] = self._uses.get(key, 0) + 1

    def _release(self, marks: Iterable[Marked]) -> None:
        """One use of each is over; a mark that nobody needs goes back to the pool."""
        for one in marks:
            key = id(one.put)
            left = self._uses.pop(key, 1) - 1
            if left > 0:
                self._uses[key] = left
            else:
                self.clock.free(one.put.mark)

    def _free(self, marks: Iterable[Marked]) -> None:
        self.clock.free(*(one.put.mark for one in marks))


class _Tie:
    """Ties the device's clock to the host's. Device seconds are told from the begin of the step that is read."""

    def __init__(self) -> None:
        self._offset_s: float | None = None
        """Device time less host time of a mark without lag; None = not known."""
        self._anchored_ns = 0
        self._zero_ns = 0
        """Host time from which the offset counts, to keep the numbers small."""
        self._times: dict[int, tuple[Marked, float]] = {}
        """The marks of the step that is read, by the id of what was put: when the device passed them."""

    def lose(self) -> None:
        """The chain of marks is broken."""
        self._offset_s = None

    def begin(self, marks: Sequence[tuple[Marked, float]]) -> None:
        """A step is read: where nothing ties the clocks yet, the first mark that can ties them from its begin on.

        Args:
            marks: the last one of the step before and the step's own, and when the device passed them.
        """
        zero_ns = marks[0][0].put.at_ns
        if self._offset_s is not None and (zero_ns - self._anchored_ns) * 1e-9 > ANCHOR_S:
            self._offset_s = None
        self._times = {id(one.put.mark): (one, at_s) for one, at_s in marks}
        if self._offset_s is None:
            self._zero_ns = zero_ns
            for one, at_s in marks:
                self._renew(one, at_s)
                if self._offset_s is not None:
                    break

    def lag(self, cut: Marked, at_s: float) -> float | None:
        """Seconds of work that the device had left when the host came to a mark; None = not known."""
        self._renew(cut, at_s)
        if self._offset_s is None:
            return None
        lag_s = at_s - self._host_s(cut) - self._offset_s
        if lag_s < 0:  # no mark is passed before it was put: the clocks have drifted so far
            self._offset_s += lag_s
        return max(lag_s, 0.0)

    def moved(self, end_s: float) -> None:
        """The next step begins so many device seconds later: its times are told from there on."""
        if self._offset_s is not None:
            self._offset_s -= end_s

    def _renew(self, cut: Marked, at_s: float) -> None:
        """Ties the clocks by what was asked at a mark: the stream was empty, or had passed an earlier mark by then."""
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
        return (cut.put.at_ns - self._zero_ns) * 1e-9


def _interval(
    last: Marked, cut: Marked, within: Sequence[int], begin_s: float, end_s: float, lag_s: float | None
) -> Interval:
    """What lies between two marks; the host is in what `within` says."""
    loss = (last.code, cut.code) == (events.CALLED, events.GRADIENT) and not within
    phase = LOSS if loss else within[-1] if within else OTHER
    if lag_s is None and phase == DATA_WAIT and cut.put.passed is last.put.mark:
        lag_s = 0.0  # a loader that launches work itself: any part of the time until then may have been idle
    host_s, own_s = cut.put.at_ns - last.put.at_ns, cut.own_ns - last.own_ns
    return Interval(phase, begin_s, end_s, max(host_s, 0) * 1e-9, lag_s, max(own_s, 0) * 1e-9, cut.evaluation)


def _sorted(marks: Sequence[Marked]) -> tuple[list[Marked], list[tuple[Marked, Marked, bool]]]:
    """The marks that cut a step, and its copies."""
    cuts: list[Marked] = []
    copies: list[tuple[Marked, Marked, bool]] = []
    begin: Marked | None = None
    for one in marks:
        if one.code == events.COPYING:
            begin = one
        elif one.code == events.COPIED:
            if begin is not None:
                copies.append((begin, one, one.put.aside))
            begin = None
        else:
            cuts.append(one)
    return cuts, copies


def _settled(within: list[int], cuts: Sequence[Marked]) -> list[int]:
    """What the host is in after these marks, outermost first."""
    for cut in cuts:
        if cut.code == events.NEXT or cut.evaluation:  # of an evaluation not all marks are kept
            within = []
        if (phase := _BEGINS.get(cut.code)) is not None:
            within = [*within, phase]
        elif (phase := _ENDS.get(cut.code)) is not None and phase in within:
            last = len(within) - 1 - within[::-1].index(phase)
            within = within[:last]
    return within

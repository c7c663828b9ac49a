"""Properties of the step clock: of every possible loop, and of its rest after an interrupt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, NamedTuple
from unittest import mock

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_doctor.capture import events as ev
from gpu_doctor.capture import spans, step_clock
from gpu_doctor.capture.events import CODES, STARTS, Event, call_code
from gpu_doctor.capture.found import PlacedSample, StackSample, Step
from gpu_doctor.capture.gpu.clock import Put
from gpu_doctor.capture.sources import Pulled
from gpu_doctor.capture.spans import Span
from gpu_doctor.capture.step_clock import StepClock
from gpu_doctor.recording.steps import (
    BACKWARD,
    DATA_WAIT,
    EVALUATION,
    FORWARD,
    LOSS,
    NO_GRAD,
    OPTIMIZER,
    OTHER,
    PHASES,
    STEP_COLUMNS,
    SYNC,
    TRAINING,
    TRANSFER,
)
from tests.support.properties import examples
from tests.support.properties import hypothesis_is_set_up as hypothesis_is_set_up

CHECK: Final = examples(100)
BEGAN: Final = 7
"""When the run began, on the clock of the events."""
SOURCES: Final = 12
NAMES: Final = {value: name for name, value in reversed(vars(ev).items()) if name.isupper() and type(value) is int}
_WAIT, _SAMPLES, _BATCHES = (STEP_COLUMNS.index(name) for name in ("data_wait_s", "samples", "batches"))
_START, _WALL, _KIND = (STEP_COLUMNS.index(name) for name in ("start_s", "wall_s", "kind"))
_LOSS, _NO_GRAD, _EDGE = (STEP_COLUMNS.index(name) for name in ("loss_s", "no_grad_s", "edge_s"))


# ---- loops ----------------------------------------------------------------------------------------------------------


@dataclass
class Loop:
    """What a loop notes; iterators share a loader by threes."""

    events: list[Event]

    @property
    def began(self) -> int | None:
        """When the loop began; None = never."""
        return next((now for code, now, _ in self.events if code in STARTS), None)

    def count(self, code: int) -> int:
        """How many events there are of a code."""
        return sum(code == one for one, _, _ in self.events)

    def __repr__(self) -> str:
        shown = [f"{NAMES.get(code, f'CALL+{code - ev.CALL}')}@{now}({arg})" for code, now, arg in self.events]
        return f"Loop({' '.join(shown)})"


def pulled(source: int) -> Pulled:
    """An iterator and its loader, as events carry them."""
    return source + 1, f"loader {source // 3}"


def with_owner(events: list[Event], by_hand: bool | None) -> Loop:
    """The loop whose first backward shows who owns the parameters; None = it shows nothing."""
    first = next((i for i, (code, _, _) in enumerate(events) if code == ev.GRADIENT), None)
    if by_hand is None or first is None:
        return Loop(events)
    return Loop([*events[:first], (ev.BY_HAND, events[first][1], by_hand), *events[first:]])


class Writer:
    """Writes a loop down: every event comes some time after the one before, which may be none at all."""

    def __init__(self, gaps: Sequence[int], scale: int, optimizer: bool = True) -> None:
        """Args: gaps: between events, again and again. scale: ns of a gap of 1. optimizer: there is one."""
        self.optimizer = optimizer
        self.now, self.gap, self.gaps, self.scale = 50, 0, cycle(gaps), scale
        self.events: list[Event] = []
        self.made = [0] * (SOURCES // 3)
        """How many iterators each loader has made."""

    def note(self, code: int, arg: Any = None) -> None:
        """The next event."""
        self.gap = next(self.gaps) * self.scale
        self.now += self.gap
        self.events.append((code, self.now, arg))

    def timed(self, code: int, arg: Callable[[int], Any]) -> None:
        """The next event, which carries how long something took: half of the time since the last, or all of it."""
        self.note(code)
        self.events[-1] = code, self.now, arg(self.gap if self.gap % 2 else self.gap // 2)

    def opens(self, loader: int) -> int:
        """Another iterator over a loader: its source."""
        self.made[loader] += 1
        return 3 * loader + (self.made[loader] - 1) % 3

    def pull(self, source: int, blind: bool = False, inside: Move = (), samples: float = 8.0) -> None:
        """A batch is requested, and comes."""
        self.note(ev.NEXT_BLIND if blind else ev.NEXT, pulled(source))
        self.make(inside)
        self.note(ev.BATCH, samples)

    def make(self, move: Move) -> None:
        """Whatever a move of the loop consists of."""
        if move:
            getattr(self, f"_{move[0]}")(*move[1:])

    def _leaf(self, code: int) -> None:
        if code in (ev.COPIED, ev.COPYING):
            self.note(ev.COPYING)
            self.note(ev.COPIED, (100, True, "copy") if code == ev.COPIED else None)
        elif code == ev.SYNCED:
            self.note(ev.WAITING)
            self.note(ev.SYNCED)
        elif code == ev.COSTLY:
            self.timed(code, lambda ns: ("print", "line 1", ns, 10.0))
        elif code == ev.OURS:
            self.timed(code, lambda ns: self.now - ns)
        elif code == ev.CPU:
            self.note(code, 3 * len(self.events))
        elif code == ev.MARK:
            of = (ev.CALL, ev.CALLED, ev.STEPPED)[len(self.events) % 3]
            self.note(code, (of, Put(len(self.events), self.now), 0))
        elif code == ev.BY_HAND:
            self.note(code, len(self.events) % 2 == 0)
        else:
            self.note(code, {ev.CAME: "back", ev.BATCH_AT: "there"}.get(code))

    def _forward(self, flags: int, inside: Move = ()) -> None:
        self.note(ev.CALL + flags, (4.0, flags % 2) if flags != 7 else None)
        self.make(inside)
        self.note(ev.CALLED)

    def _backward(self, code: int, inside: Move = ()) -> None:
        self.note(code, len(self.events) if code == ev.GRADIENT else None)
        self.make(inside)
        self.note(ev.BACKED)

    def _zero(self, inside: Move = ()) -> None:
        self.note(ev.ZERO)
        self.make(inside)
        self.note(ev.DONE)

    def _step(self, key: int, inside: Move = ()) -> None:
        if self.optimizer:
            self.note(ev.STEP, key)
        self.make(inside)
        if self.optimizer:
            self.note(ev.STEPPED, key)

    def _phase(self, phase: int, inside: Move = ()) -> None:
        self.note(ev.PHASE, phase)
        self.make(inside)
        self.note(ev.DONE)

    def _wrapped(self, key: int) -> None:
        """A step of an optimizer that wraps another."""
        self.note(ev.PHASE, BACKWARD)
        self._step(key)
        self._phase(OTHER)
        self.note(ev.DONE)

    def _failed(self, key: int) -> None:
        """A step that raised, which shows when the next one begins."""
        if self.optimizer:
            self.note(ev.STEP, key)
            self.note(ev.ABANDONED)
        self._step(key)

    def _several(self, *moves: Move) -> None:
        for move in moves:
            self.make(move)

    def _pull(self, source: int, inside: Move = ()) -> None:
        self.pull(source, inside=inside)

    def _open(self, loader: int, known: bool, blind: bool, inside: Move = ()) -> None:
        source = pulled(self.opens(loader))
        self.note(ev.OPENING, (blind, source[1] if known else None))
        self.make(inside)
        self.note(ev.OPENED, source)

    def _pass(
        self, loader: int, known: bool | None, blind: bool, beside: int | None, bodies: list[list[Move]], ends: bool
    ) -> None:
        """A `for` over a loader, or over two of them in a zip."""
        sources = []
        for one in (loader, beside):
            if one is None:
                continue
            sources.append(self.opens(one))
            if known is not None:
                self.note(ev.OPENING, (blind, pulled(sources[-1])[1] if known else None))
                self.note(ev.OPENED, pulled(sources[-1]))
        for body in bodies:
            for source in sources:
                self.pull(source, blind)
            for move in body:
                self.make(move)
        if ends:
            self.note(ev.NEXT_BLIND if blind else ev.NEXT, pulled(sources[0]))
            self.note(ev.EXHAUSTED)


Move = tuple[Any, ...]
"""A piece of a loop: the name of what writes it down, and its arguments."""
LEAVES: Final = tuple(
    ("leaf", code)
    for code in (
        *(ev.COPIED, ev.SYNCED, ev.CAME, ev.COSTLY, ev.OURS, ev.CPU),
        *(ev.BATCH_AT, ev.BY_HAND, ev.COPYING, ev.MARK),
    )
)
TRAINED: Final = call_code(True, True, True) - ev.CALL
TESTED: Final = call_code(False, False, True) - ev.CALL
_GRADIENTS: Final = ("several", ("forward", TRAINED), ("backward", ev.GRADIENT))
_TRAINS: Final = ("several", _GRADIENTS, ("step", 1))
_CLOSURE: Final = ("phase", OTHER, _GRADIENTS)
MOVES: Final = (
    *(("several", _GRADIENTS, ("step", key)) for key in (1, 1, 1, 2)),
    *(("forward", flags) for flags in (*range(8), TRAINED, TESTED, TESTED)),
    *(("forward", flags, leaf) for flags in (TRAINED, TESTED) for leaf in (LEAVES[0], LEAVES[1], LEAVES[2])),
    _GRADIENTS,
    *(("backward", code) for code in (ev.GRADIENT, ev.DIFFERENTIATE)),
    *(("backward", ev.GRADIENT, inside) for inside in (("forward", TRAINED), ("step", 1), LEAVES[1])),
    *(("zero",), ("zero", LEAVES[4])),
    *(("step", 1), ("step", 2), ("step", 1, _CLOSURE), ("step", 2, _GRADIENTS), ("step", 1, ("step", 2))),
    *(("wrapped", 1), ("failed", 1)),
    *(("phase", BACKWARD), ("phase", OTHER, ("forward", TRAINED)), ("phase", OTHER, LEAVES[0])),
    *(("pull", 9), ("pull", 10), ("pull", 9, LEAVES[0]), ("pull", 9, ("forward", TESTED)), ("pull", 9, ("pull", 10))),
    *(("open", 1, False, False, leaf) for leaf in ((), LEAVES[1])),
    *LEAVES,
)
_gaps = st.lists(st.integers(0, 9), min_size=1, max_size=20)
_optimizer = st.sampled_from((True, True, False))
_by_hand = st.sampled_from((None, True, False))
_body = st.lists(st.sampled_from(MOVES), max_size=4)
_passes = st.tuples(
    st.just("pass"),
    st.integers(0, 2),
    st.sampled_from((None, None, False, True, True)),
    st.booleans(),
    st.sampled_from((None, None, None, 0, 1)),
    st.lists(_body, max_size=4),
    st.booleans(),
)
_pieces = st.lists(st.one_of(_passes, _body.map(lambda moves: ("several", *moves))), min_size=1, max_size=4)


def _loop(pieces: list[Move], gaps: list[int], scale: int, optimizer: bool, by_hand: bool | None) -> Loop:
    writer = Writer(gaps, scale, optimizer)
    writer.make(("several", *pieces))
    return with_owner(writer.events, by_hand)


loops = st.builds(_loop, _pieces, _gaps, st.sampled_from((1, 1_000, 150_000_000)), _optimizer, _by_hand)
"""Loops as they are written: whatever begins has an end."""


def written(*moves: Move, gaps: Sequence[int] = (1,), by_hand: bool | None = None) -> Loop:
    """These moves as a loop."""
    writer = Writer(gaps, 1)
    writer.make(("several", *moves))
    return with_owner(writer.events, by_hand)


mixed_loops = loops.map(lambda loop: with_owner([one for one in loop.events if one[0] != ev.BY_HAND], True))
"""Loops that may change their parameters themselves, in some of which batches are pulled, too."""

_ARGUMENTS: Final[dict[int, tuple[Any, ...]]] = {
    ev.NEXT: tuple(map(pulled, range(SOURCES))),
    ev.NEXT_BLIND: tuple(map(pulled, range(SOURCES))),
    ev.BY_HAND: (True, False),
    ev.BATCH: (8.0, 2.0, float("nan")),
    ev.OPENING: ((False, None), (True, None), (False, "loader 1")),
    ev.OPENED: (None, pulled(0), pulled(3), pulled(4)),
    ev.GRADIENT: (None, 1),
    ev.STEP: (1, 2),
    ev.STEPPED: (1, 2),
    ev.PHASE: (OTHER, BACKWARD),
    ev.COPIED: ((100, True, "copy"), (100, False, "copy"), None),
    ev.CAME: ("back",),
    ev.BATCH_AT: ("there",),
    ev.COSTLY: (("print", "line 1", 5, 10.0),),
    ev.OURS: (50,),
    ev.CPU: (0, 1_000),
    ev.MARK: tuple((code, Put(mark, 0), 0) for code, mark in ((ev.CALL, 1), (ev.STEPPED, 2), (ev.CALLED, None))),
    **{ev.CALL + flags: (None, (4.0, 1), (float("nan"), 2)) for flags in range(8)},
}


def _soup(notes: list[tuple[int, int, int]]) -> Loop:
    now, noted = 50, list[Event]()
    for code, gap, pick in notes:
        now += gap
        arguments = _ARGUMENTS.get(code, (None,))
        noted.append((code, now, arguments[pick % len(arguments)]))
    return Loop(noted)


def _with_losses(loop: Loop, lost: list[int]) -> Loop:
    return Loop([event for i, event in enumerate(loop.events) if i not in lost])


_codes = st.integers(0, CODES - 1).filter(lambda code: code != ev.PAUSED)
"""A trial's pause follows a step's end alone: `tests/unit/trials/test_stretch.py`."""
_notes = st.lists(st.tuples(_codes, st.integers(0, 9), st.integers(0, 11)), max_size=60)
soups = st.one_of(
    st.builds(_soup, _notes),
    st.builds(_with_losses, loops, st.lists(st.integers(0, 60), min_size=1, max_size=6)),
)
"""Any events in any order, and loops that have lost some of theirs."""


class Plain(NamedTuple):
    """A loop that only trains, from one loader with one iterator at a time, and what it has done."""

    loop: Loop
    steps: int
    samples: float


_WITHIN: Final = (
    (),
    *(LEAVES[0], LEAVES[1], LEAVES[3], LEAVES[4], LEAVES[5]),
    ("forward", call_code(True, False, True) - ev.CALL),
    ("backward", ev.DIFFERENTIATE),
    ("zero",),
    ("phase", BACKWARD),
)
_UPDATES: Final = (("step", 1), ("step", 1, _CLOSURE), ("step", 1, LEAVES[1]), ("wrapped", 1), ("failed", 1))


def _plain(
    epochs: list[list[tuple[int, Move, Move, Move, bool]]], ends: bool, gaps: list[int], scale: int, two: bool
) -> Plain:
    writer, samples = Writer(gaps, scale), 0.0
    for steps in epochs:
        source = writer.opens(0)
        for batches, before, within, update, after in steps:
            for i in range(batches):
                writer.pull(source, samples=2.0 + i, inside=before if before[:1] == ("leaf",) else ())
                samples += 2.0 + i
                writer.make(("several", before, ("forward", TRAINED), within, ("backward", ev.GRADIENT)))
            writer.make(update)
            if two:
                writer.make(("step", 2))
            writer.make(("leaf", ev.SYNCED) if after else ())
        if ends:
            writer.note(ev.NEXT, pulled(source))
            writer.note(ev.EXHAUSTED)
    return Plain(Loop(writer.events), sum(map(len, epochs)), samples)


plain_loops = st.builds(
    _plain,
    st.lists(
        st.lists(
            st.tuples(
                st.integers(1, 3),
                st.sampled_from(_WITHIN),
                st.sampled_from(_WITHIN),
                st.sampled_from(_UPDATES),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
    _gaps,
    st.sampled_from((1, 1_000)),
    st.booleans(),
)


def _samples(begins: list[tuple[int, int]], scale: int) -> list[StackSample]:
    now, stack_samples = 40, list[StackSample]()
    for number, (gap, length) in enumerate(begins):
        begin = now + gap * scale
        now = begin + length * scale
        stack_samples.append(StackSample(begin, now, number))
    return stack_samples


some_samples = st.builds(
    _samples,
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from((0, 0, 1, 2, 5))), max_size=12),
    st.sampled_from((1, 1, 1_000)),
)
some_cuts = st.lists(st.integers(0, 60), max_size=8).map(sorted)


# ---- what comes of them ---------------------------------------------------------------------------------------------


class Bill(NamedTuple):
    """What a row, or the tail, was made of."""

    spans: list[Span]
    begin: int
    end: int
    values: list[float]

    @property
    def ns(self) -> list[int]:
        """The measured phases, to the nanosecond."""
        return [0 if s != s else round(s * 1e9) for s in self.values[_WAIT : _WAIT + len(PHASES)]]

    def column(self, at: int) -> int:
        """Another column of seconds, as ns."""
        return round(self.values[at] * 1e9)


@dataclass
class Result:
    """Everything that a step clock has found out about a loop."""

    steps: list[Step]
    losses: list[tuple[int, int]]
    copies: list[Any]
    roles: list[tuple[str, str]]
    stack_samples: list[PlacedSample]
    tail: Bill | None
    bills: list[Bill]
    passes: list[int]
    edge_ns: int

    def same(self) -> str:
        """Everything but losses and stack samples, as a text, in which NaN is NaN."""
        return repr((self.steps, self.copies, self.tail and self.tail.values, self.roles, self.passes, self.edge_ns))


def billed_by(
    loop: Loop, cuts: Sequence[int] = (), stack_samples: Sequence[StackSample] = (), sync_measured: bool = True
) -> Result:
    """Runs the loop through a step clock, folded where it is cut, as the recorder does."""
    events, clock, waiting, bills = loop.events, StepClock(BEGAN, sync_measured), list(stack_samples), list[Bill]()
    result = Result([], [], [], [], [], None, bills, [], 0)

    def billed(of: Sequence[Span], begin: int, end: int, *others: Any) -> list[float]:
        values = spans.row(of, begin, end, *others)
        bills.append(Bill(list(of), begin + BEGAN, end + BEGAN, values))
        return values

    def take() -> None:
        found = clock.found()
        result.steps += found.steps
        result.losses += found.losses
        result.copies += found.copies
        result.stack_samples += found.stack_samples
        result.roles += found.roles

    with mock.patch.object(step_clock, "row", billed):
        for begin, end in zip((0, *cuts), (*cuts, len(events)), strict=True):
            clock.fold(events[begin:end], waiting)
            take()
        clock.no_more_requests()
        left = clock.finish()
        take()
        if left:
            clock.tail(left)
            result.tail = bills.pop()
    result.passes = [clock.sources.passes(f"loader {number}") for number in range(SOURCES // 3)]
    result.edge_ns = clock.evaluation_edge_ns
    assert clock.step_count == len(result.steps) == len(bills)
    return result


# ---- what they should be --------------------------------------------------------------------------------------------


class Stay(NamedTuple):
    """A time in which the loop was in one phase, as its open pairs say."""

    begin: int
    end: int
    phase: int


_BEGINS: Final = {
    ev.NEXT: DATA_WAIT,
    ev.NEXT_BLIND: DATA_WAIT,
    ev.OPENING: DATA_WAIT,
    ev.GRADIENT: BACKWARD,
    ev.DIFFERENTIATE: BACKWARD,
    ev.ZERO: OPTIMIZER,
    ev.STEP: OPTIMIZER,
    ev.COPYING: TRANSFER,
    ev.WAITING: SYNC,
    **{ev.CALL + flags: NO_GRAD if flags & 3 == 1 else FORWARD for flags in range(8)},
}
_ENDS: Final = (
    *(ev.BATCH, ev.EXHAUSTED, ev.OPENED, ev.BACKED, ev.DONE, ev.STEPPED, ev.ABANDONED, ev.CALLED),
    *(ev.COPIED, ev.SYNCED),
)
_NO_LOSS: Final = (ev.NEXT, ev.NEXT_BLIND, ev.GRADIENT, ev.DIFFERENTIATE, ev.ZERO, ev.STEP)
"""What comes next is no computing of a loss any more."""


def stays(loop: Loop, ours: bool = True) -> Iterator[Stay]:
    """Where a well-formed loop was, without evaluations: what is not inside of a pair is `other`.

    Args: ours: True if our own work counts as `other`.
    """
    inside, since, began = [OTHER], 0, False
    for code, now, arg in loop.events:
        if began:
            until = arg if code == ev.OURS and ours else now
            yield Stay(since, until, inside[-1])
            yield Stay(until, now, OTHER)
        since, began = now, began or code in STARTS
        if code in _NO_LOSS and inside[-1] == LOSS:
            inside[-1] = OTHER
        if code == ev.PHASE or code in _BEGINS:
            inside.append(arg if code == ev.PHASE else _BEGINS[code])
        elif code in _ENDS:
            inside.pop()
            if code == ev.CALLED and inside[-1] == OTHER:
                inside[-1] = LOSS
    assert inside in ([OTHER], [LOSS]), "well-formed"


def spent(where: list[Stay], begin: int, end: int) -> list[int]:
    """The ns in every measured phase between two times."""
    ns = [0] * (OTHER + 1)
    for one in where:
        ns[one.phase] += max(min(one.end, end) - max(one.begin, begin), 0)
    ns[FORWARD] += ns[NO_GRAD]
    return ns[: len(PHASES)]


def check_bills(loop: Loop, result: Result) -> None:
    """All of the wall-clock is billed, and once: rows touch, and what a row is made of fills it."""
    restarts = {now for code, now, _ in loop.events if code == ev.RESTART}
    at = BEGAN if loop.began is None else loop.began  # the end of an optimizer's step is no begin of a loop
    for bill in (*result.bills, *([result.tail] if result.tail is not None else [])):
        assert bill.begin == at or bill.begin in restarts
        assert bill.column(_START) == bill.begin - BEGAN and bill.column(_WALL) == bill.end - bill.begin
        at = bill.begin
        for span in bill.spans:
            assert span.begin == at
            at += sum(span.ns)
        assert at == bill.end
        assert bill.begin <= bill.end <= loop.events[-1][1]


# ---- properties -----------------------------------------------------------------------------------------------------


@CHECK
@example(written(("pull", 0), _GRADIENTS, ("pull", 0), _GRADIENTS, ("step", 1)), [7], [])
@given(loops, some_cuts, some_samples)
def test_any_cut_of_a_loop_into_blocks_gives_the_same(
    loop: Loop, cuts: list[int], stack_samples: list[StackSample]
) -> None:
    whole = billed_by(loop, (), stack_samples)
    for blocks in (cuts, range(1, len(loop.events))):
        cut = billed_by(loop, blocks, stack_samples)
        assert cut.same() == whole.same()
        assert cut.stack_samples == whole.stack_samples
    assert billed_by(loop, cuts).losses == whole.losses


@CHECK
@given(soups, some_cuts, some_samples)
def test_any_cut_of_the_rest_of_a_loop_gives_the_same(
    loop: Loop, cuts: list[int], stack_samples: list[StackSample]
) -> None:
    whole, cut = billed_by(loop, (), stack_samples), billed_by(loop, cuts, stack_samples)
    assert cut.same() == whole.same()
    assert cut.stack_samples == whole.stack_samples


@CHECK
@example([_TRAINS] * 3)
@given(st.lists(st.sampled_from((_TRAINS, ("several", ("zero",), _TRAINS), ("step", 1, _CLOSURE))), max_size=5))
def test_every_step_of_a_loop_without_a_loader_has_its_own_loss(steps: list[Move]) -> None:
    loop = written(*steps)
    result = billed_by(loop)
    assert [step for step, _ in result.losses] == list(range(len(steps)))
    assert [loss for _, loss in result.losses] == [arg for code, _, arg in loop.events if code == ev.GRADIENT]


@CHECK
@given(soups, some_samples)
def test_time_and_batches_of_any_events_count_once(loop: Loop, stack_samples: list[StackSample]) -> None:
    result = billed_by(loop, (), stack_samples)
    check_bills(loop, result)
    assert sum(bill.values[_BATCHES] for bill in result.bills) <= loop.count(ev.BATCH)
    began = loop.began
    assert began is None or sorted(one.seen for one in result.stack_samples) == sorted(
        sample.seen for sample in stack_samples if began <= sample.begin_ns < loop.events[-1][1]
    )


@CHECK
@given(loops)
def test_all_time_of_a_loop_is_billed_to_the_phase_that_ran_or_to_an_evaluation(loop: Loop) -> None:
    result = billed_by(loop)
    check_bills(loop, result)
    where = list(stays(loop))
    for bill in (*result.bills, *([result.tail] if result.tail is not None else [])):
        other = bill.end - bill.begin - sum(bill.ns)
        assert min(bill.ns) >= 0 and 0 <= bill.column(_LOSS) <= other
        assert 0 <= bill.column(_NO_GRAD) <= bill.ns[FORWARD]
        ran = spent(where, bill.begin, bill.end)
        assert all(ns <= most for ns, most in zip(bill.ns[:EVALUATION], ran, strict=False))


@CHECK
@example(written(("backward", ev.GRADIENT), ("pull", 0), ("pull", 0), _GRADIENTS, ("step", 1), by_hand=True))
@example(
    written(("backward", ev.GRADIENT), ("pull", 0), ("pull", 0), _GRADIENTS, ("pull", 0), _GRADIENTS, by_hand=True)
)
@given(mixed_loops)
def test_all_time_of_a_loop_that_changes_its_parameters_itself_is_billed_once(loop: Loop) -> None:
    check_bills(loop, billed_by(loop))


@CHECK
@example(written(("open", 1, False, False, ("leaf", ev.SYNCED)), _TRAINS))
@example(written(("pull", 9, ("pull", 10)), _TRAINS, gaps=(1, 9)))
@given(loops)
def test_an_epochs_edge_is_a_part_of_the_wait_for_data(loop: Loop) -> None:
    assert all(0 <= bill.column(_EDGE) <= bill.ns[DATA_WAIT] for bill in billed_by(loop).bills)


@CHECK
@given(loops)
def test_no_batch_and_no_sample_counts_twice(loop: Loop) -> None:
    pulled = [bill for bill in billed_by(loop).bills if bill.values[_BATCHES]]
    batches = loop.count(ev.BATCH)
    assert sum(bill.values[_BATCHES] for bill in pulled) <= batches
    assert sum(bill.values[_SAMPLES] for bill in pulled) <= sum(arg for code, _, arg in loop.events if code == ev.BATCH)


@CHECK
@given(loops)
def test_rows_are_steps_of_optimizers_or_batches_before_the_first_one(loop: Loop) -> None:
    """Once an optimizer has stepped, a row ends only where one has stepped since the last row's end: no more rows than
    steps. A second step of the only optimizer there is always ends the row of its first: no fewer rows either."""
    first = next((i for i, (code, _, _) in enumerate(loop.events) if code == ev.STEPPED), None)
    if first is None:
        assert len(billed_by(loop).steps) <= loop.count(ev.BATCH) or any(
            code == ev.BY_HAND and arg for code, _, arg in loop.events
        )
        return
    clock = StepClock(BEGAN)
    clock.fold(loop.events[:first])
    rows, stepped = len(billed_by(loop).steps) - clock.step_count, loop.count(ev.STEPPED)
    assert 1 <= rows <= stepped
    if len({arg for code, _, arg in loop.events if code == ev.STEPPED}) == 1:
        assert rows == stepped


@CHECK
@given(plain_loops, st.booleans())
def test_everything_about_a_loop_that_only_trains_is_known(plain: Plain, sync_measured: bool) -> None:
    loop, result = plain.loop, billed_by(plain.loop, sync_measured=sync_measured)
    check_bills(loop, result)
    assert result.tail is None and len(result.bills) == plain.steps
    assert {bill.values[_KIND] for bill in result.bills} == {TRAINING}
    assert sum(bill.values[_BATCHES] for bill in result.bills) == loop.count(ev.BATCH)
    assert sum(bill.values[_SAMPLES] for bill in result.bills) == plain.samples
    requests = (ev.EXHAUSTED, ev.NEXT)
    ends = [
        one for one in zip(loop.events, loop.events[1:], strict=False) if tuple(e[0] for e in one) == requests[::-1]
    ]
    stepped = max(now for code, now, _ in loop.events if code == ev.STEPPED)
    assert result.bills[-1].end == (ends[-1][0][1] if ends else stepped)
    losses = {arg: now for code, now, arg in loop.events if code == ev.GRADIENT}
    assert [step for step, _ in result.losses] == list(range(plain.steps))
    assert all(result.bills[step].begin <= losses[loss] <= result.bills[step].end for step, loss in result.losses)
    where = list(stays(loop))
    for bill in result.bills:
        ran = spent(where, bill.begin, bill.end)
        if not sync_measured:
            ran[SYNC] = 0
        assert bill.ns == ran


@CHECK
@example(written(("pull", 0), ("zero", ("leaf", ev.OURS)), gaps=[0, 0, 0, 1]), [StackSample(50, 51, 0)])
@given(loops, some_samples)
def test_stack_samples_change_no_row_and_fall_into_the_phase_that_ran(
    loop: Loop, stack_samples: list[StackSample]
) -> None:
    blind, result = billed_by(loop), billed_by(loop, (), stack_samples)
    assert result.same() == blind.same()
    check_samples(loop, stack_samples, result, EVALUATION)


@CHECK
@given(plain_loops, some_samples)
def test_stack_samples_of_a_loop_that_only_trains_fall_into_the_phase_that_ran(
    plain: Plain, stack_samples: list[StackSample]
) -> None:
    check_samples(plain.loop, stack_samples, billed_by(plain.loop, (), stack_samples), -1)


def check_samples(loop: Loop, stack_samples: list[StackSample], result: Result, or_else: int) -> None:
    """Each sample since the loop began is placed once: in the phase between two events, unless our work is in it."""
    where, seen, loops_until = list(stays(loop, ours=False)), dict[int, int](), dict[int, int]()
    for code, now, arg in loop.events:
        loops_until.setdefault(now, arg if code == ev.OURS else now)
    for phase, feeding, _, number in result.stack_samples:
        assert number not in seen and (not feeding or phase == OTHER)
        seen[number] = phase
    for sample in stack_samples:
        around = next((one for one in where if one.begin <= sample.begin_ns < one.end), None)
        if around is None:
            assert sample.seen not in seen
        elif sample.end_ns <= loops_until[around.end]:
            undone = OTHER if around.phase == LOSS and or_else != -1 else around.phase  # no backward followed
            assert seen[sample.seen] in (around.phase, or_else, undone)
        else:
            assert seen[sample.seen] == -1


@CHECK
@example(Plain(written(("pull", 0), _TRAINS), 1, 8.0), [StackSample(51, 51, 0)], [2])
@example(Plain(written(("pull", 0), _TRAINS), 1, 8.0), [StackSample(51, 53, 0)], [2])
@given(plain_loops, some_samples, some_cuts)
def test_a_stack_sample_that_comes_late_falls_into_no_wrong_phase(
    plain: Plain, stack_samples: list[StackSample], cuts: list[int]
) -> None:
    """The sampler passes a sample on when it has ended: the loop may have gone on, and been folded, since it began."""
    loop, events, clock, waiting = plain.loop, plain.loop.events, StepClock(BEGAN, True), list[StackSample]()
    stack_samples = [sample for sample in stack_samples if sample.begin_ns >= loop.events[0][1]]
    coming = list(stack_samples)
    for begin, end in zip((0, *cuts), (*cuts, len(events)), strict=True):
        clock.fold(events[begin:end], waiting)
        while coming and clock.now > coming[0].begin_ns:
            waiting.append(coming.pop(0))
    where = list(stays(loop, ours=False))
    for phase, _, _, number in clock.stack_samples:
        sample = next(one for one in stack_samples if one.seen == number)
        around = next((one for one in where if one.begin <= sample.begin_ns and sample.end_ns <= one.end), None)
        assert phase == -1 or (around is not None and phase == around.phase)

"""The events of a training loop as codes and times: how they are noted down, and how the ledger is told of them later.

A note costs two list entries. What it means is worked out where it is needed: for whole blocks of steps at once, or by
telling the ledger.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gpu_doctor.recording.steps import SYNC

if TYPE_CHECKING:
    from gpu_doctor.capture.ledger import Pull

Note: TypeAlias = Callable[..., Any]
BACK: Final = -1
"""What a noted event returns as the phase to go back to: the ledger keeps the real one, see `Account.back`."""
DELIVERED, FORWARD_DONE, BACKWARD, GRADIENT, ZEROING, OPTIMIZER_DONE = range(-8, -2)
SYNCED, PAGED, COPIED, LEAF = range(-12, -8)
"""A copy or a wait inside the running phase: LEAF where it begins, then one of the others where it has ended (PAGED: a
copy from pageable memory)."""
FORWARDS: Final = tuple(range(1000, 1008))
"""Codes of a forward by training + 2 * grad + 4 * trained. Phases stand for a switch to them, BACK for one back, ids of
optimizers for their step, pulls for an ask with gradients, and pulls in a tuple for one without."""
BEGINS: Final = ("ask", "forward", "backward", "gradient", "zeroing", "optimizer", "switch")
"""Events that return the phase to go back to (a switch back does not)."""
ENDS: Final = ("delivered", "forward_done", "optimizer_done")
ASKED: Final = ("wants_samples",)
LEAVES: Final = ("carve", "copied")
"""Events that say when they have ended how long they took."""
SELDOM: Final = ("begin", "ended", "opening", "opened", "finish")
"""What happens to a ledger besides."""


class Pulse:
    """What every event asks first, in one small place: whose thread it is, and whether it is only to be noted down."""

    __slots__ = (
        *(
            "alone",
            "batches",
            "count",
            "due_count",
            "due_ns",
            "ending",
            "events",
            "iterator",
            "left",
            "loss_next",
            "pattern",
        ),
        *("pull", "resting", "taking", "thread"),
    )

    def __init__(self) -> None:
        self.thread = get_ident()
        """Of the training loop."""
        self.taking = False
        """Events are noted down: a wrapper may write a code and a time and go on."""
        self.resting = False
        """Only the times of batches and asks are noted down, the other taps stand down (see `rests`): never while
        `taking`."""
        self.alone = False
        """The steps that are noted pull from nothing: they end when an optimizer is about to step."""
        self.batches = self.left = 0
        """In a rest: batches of a step, and asks until it ends."""
        self.ending = ""
        """Outcome with which the loop shall be left at its next step: `stopped` or `budget-reached`; empty = go on."""
        self.count = 0
        """Steps that have ended."""
        self.loss_next = 0
        """The first step whose loss is to be kept next."""
        self.iterator = 0
        """While events, or asks and batches alone, are noted: id of the loader's iterator that the loop pulls from,"""
        self.pull: Pull | None = None
        """what the ledger knows it as,"""
        self.events = 0
        """after how many events a step ends,"""
        self.pattern: list[Any] = []
        """which codes these have,"""
        self.due_count: float = 0
        self.due_ns = 0
        """and the count of steps, and the time, at which those noted become rows."""


class Noted:
    """Events in their order: a code and a time each; the samples of the batches among them, the bytes of the copies."""

    __slots__ = ("codes", "inputs", "moved", "samples", "times")

    def __init__(self) -> None:
        self.codes: list[Any] = []
        self.times = array("q")
        """Arrays: a block of steps fits into the processor's caches, and numpy takes it as it is."""
        self.samples = array("d")
        """Of each batch that was delivered."""
        self.inputs = array("d")
        """Of each forward's input, NaN where nobody wanted to know."""
        self.moved = array("q")
        """Bytes of each copy to a device."""

    def taken(self) -> Noted:
        """A copy; these lists, which stay the same objects, are empty from now on."""
        other = Noted()
        other.codes, other.times = self.codes.copy(), self.times[:]
        other.samples, other.inputs, other.moved = self.samples[:], self.inputs[:], self.moved[:]
        self.clear()
        return other

    def clear(self) -> None:
        """Nothing is noted; the lists stay the same objects."""
        self.codes.clear()
        del self.times[:], self.samples[:], self.inputs[:], self.moved[:]


def notes(
    noted: Noted,
    clock: Callable[[], int],
    events: int,
    ended: Callable[[], None],
    unusual: Callable[[int, int], None],
    alone: bool = False,
) -> dict[str, Note]:
    """Stand-ins for the ledger's methods: each a code and a time, and no more.

    Args:
        noted: where they write. clock: the host clock.
        events: how many a step has. ended: called at an ask after so many, where nothing is pulled (`alone`) when an
            optimizer is about to step after so many, and with what comes beyond them.
        unusual: takes what is carved out for another phase than a wait's.
    """
    codes = noted.codes
    code, stamp, sampled, fed = codes.append, noted.times.append, noted.samples.append, noted.inputs.append
    moved = noted.moved.append

    def ask(pull: Pull, grad_enabled: bool) -> int:
        code(pull if grad_enabled else (pull,))
        stamp(clock())
        if len(codes) >= events:
            ended()
        return BACK

    def delivered(pull: Pull, samples: float, before: int) -> None:
        pull.delivered += 1
        sampled(samples)
        code(DELIVERED)
        stamp(clock())

    def forward(training: bool, grad: bool, trained: bool, samples: float) -> int:
        fed(samples)
        code(FORWARDS[training + 2 * grad + 4 * trained])
        stamp(clock())
        if len(codes) > events:
            ended()
        return BACK

    def forward_done(before: int) -> None:
        code(FORWARD_DONE)
        stamp(clock())

    def backward() -> int:
        code(BACKWARD)
        stamp(clock())
        return BACK

    def gradient() -> int:
        code(GRADIENT)
        stamp(clock())
        return BACK

    def zeroing() -> int:
        code(ZEROING)
        stamp(clock())
        return BACK

    def switch(phase: int) -> int:
        code(phase)
        stamp(clock())
        return BACK

    def optimizer(key: int) -> int:
        code(key)
        stamp(clock())
        if len(codes) >= events and (alone or len(codes) > events):
            ended()
        return BACK

    def optimizer_done(key: int, before: int) -> None:
        code(OPTIMIZER_DONE)
        stamp(clock())

    def copied(nbytes: int, pageable: bool, ns: int) -> None:
        moved(nbytes)
        now = clock()
        code(LEAF)
        stamp(now - ns)
        code(PAGED if pageable else COPIED)
        stamp(now)
        if len(codes) > events:
            ended()

    def carve(phase: int, ns: int) -> None:
        if phase != SYNC:
            unusual(phase, ns)
            return
        now = clock()
        code(LEAF)
        stamp(now - ns)
        code(SYNCED)
        stamp(now)
        if len(codes) > events:
            ended()

    def wants_samples(module: int) -> bool:
        # What was pulled has gone into the optimizer's step that came after it.
        return next((one == OPTIMIZER_DONE for one in reversed(codes) if one in (DELIVERED, OPTIMIZER_DONE)), True)

    return {
        "wants_samples": wants_samples,
        "copied": copied,
        "carve": carve,
        "ask": ask,
        "delivered": delivered,
        "forward": forward,
        "forward_done": forward_done,
        "backward": backward,
        "gradient": gradient,
        "zeroing": zeroing,
        "switch": switch,
        "optimizer": optimizer,
        "optimizer_done": optimizer_done,
    }


def code_of(name: str, args: tuple[Any, ...]) -> Any:
    """How an event is noted down."""
    if name == "ask":
        return args[0] if args[1] else (args[0],)
    if name == "forward":
        training, grad, trained, _ = args
        return FORWARDS[training + 2 * grad + 4 * trained]
    if name == "optimizer":
        return args[0]
    if name == "switch":
        return args[0]
    return {
        "delivered": DELIVERED,
        "forward_done": FORWARD_DONE,
        "backward": BACKWARD,
        "gradient": GRADIENT,
        "zeroing": ZEROING,
        "optimizer_done": OPTIMIZER_DONE,
    }[name]


def is_copy(code: Any) -> bool:
    """Whether a code is that of a copy to a device that has ended."""
    return isinstance(code, int) and code in (COPIED, PAGED)


def is_forward(code: Any) -> bool:
    """Whether a code is that of a forward."""
    return isinstance(code, int) and code in FORWARDS

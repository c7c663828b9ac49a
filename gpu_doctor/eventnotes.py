"""The events of a training loop as codes and times: how they are noted down, and how the ledger is told of them later.

A note costs two list entries. What it means is worked out where it is needed: for whole blocks of steps at once, or by
telling the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gpu_doctor.phases import PHASE_COUNT

if TYPE_CHECKING:
    from gpu_doctor.ledger import Ledger, Pull

Note: TypeAlias = Callable[..., Any]
BACK: Final = -1
"""What a noted event returns as the phase to go back to: the ledger keeps the real one, see `Account.back`."""
_DELIVERED, _FORWARD_DONE, _BACKWARD, _GRADIENT, _ZEROING, _OPTIMIZER_DONE = range(-8, -2)
_FORWARDS: Final = tuple(range(1000, 1008))
"""Codes of a forward by training + 2 * grad + 4 * trained. Phases stand for a switch to them, BACK for one back, ids of
optimizers for their step, pulls for an ask with gradients, and pulls in a tuple for one without."""
BEGINS: Final = ("ask", "forward", "backward", "gradient", "zeroing", "optimizer", "switch")
"""Events that return the phase to go back to (a switch back does not)."""
ENDS: Final = ("delivered", "forward_done", "optimizer_done")
ASKED: Final = ("wants_samples",)
SELDOM: Final = ("begin", "ended", "opening", "opened", "carve", "copied", "finish")
"""What happens to a ledger besides."""


class Noted:
    """Events in their order: a code and a time each; and the samples of the batches among them."""

    __slots__ = ("codes", "inputs", "samples", "times")

    def __init__(self) -> None:
        self.codes: list[Any] = []
        self.times: list[int] = []
        self.samples: list[float] = []
        """Of each batch that was delivered."""
        self.inputs: list[float] = []
        """Of each forward's input, NaN where nobody wanted to know."""

    def clear(self) -> None:
        """Nothing is noted; the lists stay the same objects."""
        self.codes.clear()
        self.times.clear()
        self.samples.clear()
        self.inputs.clear()


def notes(noted: Noted, clock: Callable[[], int], events: int, ended: Callable[[], None]) -> dict[str, Note]:
    """Stand-ins for the ledger's methods: each a code and a time, and no more.

    Args:
        noted: where they write. clock: the host clock.
        events: how many a step has. ended: called at an ask after so many.
    """
    codes = noted.codes
    code, stamp, sampled, fed = codes.append, noted.times.append, noted.samples.append, noted.inputs.append

    def ask(pull: Pull, grad_enabled: bool) -> int:
        code(pull if grad_enabled else (pull,))
        stamp(clock())
        if len(codes) >= events:
            ended()
        return BACK

    def delivered(pull: Pull, samples: float, before: int) -> None:
        pull.delivered += 1
        sampled(samples)
        code(_DELIVERED)
        stamp(clock())

    def forward(training: bool, grad: bool, trained: bool, samples: float) -> int:
        fed(samples)
        code(_FORWARDS[training + 2 * grad + 4 * trained])
        stamp(clock())
        return BACK

    def forward_done(before: int) -> None:
        code(_FORWARD_DONE)
        stamp(clock())

    def backward() -> int:
        code(_BACKWARD)
        stamp(clock())
        return BACK

    def gradient() -> int:
        code(_GRADIENT)
        stamp(clock())
        return BACK

    def zeroing() -> int:
        code(_ZEROING)
        stamp(clock())
        return BACK

    def switch(phase: int) -> int:
        code(phase)
        stamp(clock())
        return BACK

    def optimizer(key: int) -> int:
        code(key)
        stamp(clock())
        return BACK

    def optimizer_done(key: int, before: int) -> None:
        code(_OPTIMIZER_DONE)
        stamp(clock())

    return {
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
        return _FORWARDS[training + 2 * grad + 4 * trained]
    if name == "optimizer":
        return args[0]
    if name == "switch":
        return args[0]
    return {
        "delivered": _DELIVERED,
        "forward_done": _FORWARD_DONE,
        "backward": _BACKWARD,
        "gradient": _GRADIENT,
        "zeroing": _ZEROING,
        "optimizer_done": _OPTIMIZER_DONE,
    }[name]


def is_forward(code: Any) -> bool:
    """Whether a code is that of a forward."""
    return isinstance(code, int) and code in _FORWARDS


def tell(ledger: Ledger, noted: Noted, pull: Pull, ask_before: int) -> None:
    """Tells the ledger of noted events, as if they happened now; what is still open stays in `ledger.back`."""
    clock, given, fed = ledger.clock, iter(noted.samples), iter(noted.inputs)
    open_phases, open_keys = [ask_before], [0]

    def at(ns: int) -> Callable[[], int]:
        return lambda: ns

    try:
        for code, ns in zip(noted.codes, noted.times, strict=True):
            ledger.clock = at(ns)
            if not isinstance(code, int):
                pull = code[0] if isinstance(code, tuple) else code
                open_phases.append(ledger.ask(pull, not isinstance(code, tuple)))
            elif code == _DELIVERED:
                pull.delivered -= 1  # it was counted when it was noted
                ledger.delivered(pull, next(given), open_phases.pop())
            elif code in _FORWARDS:
                flags = code - _FORWARDS[0]
                open_phases.append(ledger.forward(bool(flags & 1), bool(flags & 2), bool(flags & 4), next(fed)))
            elif code == _FORWARD_DONE:
                ledger.forward_done(open_phases.pop())
            elif code == _BACKWARD:
                open_phases.append(ledger.backward())
            elif code == _GRADIENT:
                open_phases.append(ledger.gradient())
            elif code == _ZEROING:
                open_phases.append(ledger.zeroing())
            elif code == BACK:
                ledger.switch(open_phases.pop())
            elif code == _OPTIMIZER_DONE:
                ledger.optimizer_done(open_keys.pop(), open_phases.pop())
            elif code < PHASE_COUNT:
                open_phases.append(ledger.switch(code))
            else:
                open_keys.append(code)
                open_phases.append(ledger.optimizer(code))
    finally:
        ledger.clock = clock
        ledger.back[:] = open_phases

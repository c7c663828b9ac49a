"""Ends a run from outside: by Stop, or by an interrupt if it reaches no step; restoring is never interrupted.

Stop and the budget are checked at steps, where the code can be left cleanly. Code that reaches no step is interrupted
as by the kernel's own interrupt: once, and never after its run is over.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from gpu_doctor import formatting

if TYPE_CHECKING:
    from gpu_doctor.capture import Recorder
    from gpu_doctor.trials.side_budget import SideBudget

_TIMERS: Final = ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
"""Timers of a process: wall-clock, its CPU time, CPU time with the system's; Windows has none."""
_WORKER_SIGNALS: Final = "torch.utils.data._utils.signal_handling"
STOP_PATIENCE_S: Final = 1.0
"""Seconds after Stop until a loop in one long step is interrupted, as the kernel's interrupt would."""

_insisting: list[Recorder] = []
"""Runs that are being stopped; each is interrupted once."""
_unheard: list[Recorder] = []
"""Runs that went on after their interrupt."""
_lock: Final = threading.Lock()


def stop(recorder: Recorder) -> None:
    """Ends a run from any thread: at its next step, or by an interrupt if it reaches none in STOP_PATIENCE_S.

    However often Stop is clicked meanwhile, the run is interrupted once: a second interrupt would meet the code that
    ends the loader's workers, or the user's own `finally`.
    """
    recorder.stop()
    if _claimed(recorder):
        threading.Thread(target=_insist, args=(recorder,), name="gpu_doctor-stop", daemon=True).start()


class StepGuard:
    """Ends a side of a trial that reaches no further step; the user's own run has no such guard."""

    def __init__(self) -> None:
        self.ended = False
        """True if the side was ended."""
        self.reason = ""
        """Reason why the side has nothing to compare, if its recording has no step."""

    def begin(self, budget: SideBudget) -> None:
        """Starts to watch a side, on a thread that ends with the run."""
        threading.Thread(target=self._wait, args=(budget,), name="gpu_doctor-steps", daemon=True).start()

    def _wait(self, budget: SideBudget) -> None:
        recorder, given_s = budget.recorder, budget.patience_s()
        while (left_s := budget.patience_s()) > 0:
            if recorder.over.wait(left_s):
                return
        if recorder.ending == "stopped":  # who stopped it insists
            return
        self.reason = f"no training step within {formatting.countdown(given_s)}"
        self.ended, recorder.log.ending = True, recorder.ending or "budget-reached"
        if _claimed(recorder):
            _insist(recorder)


def _claimed(recorder: Recorder) -> bool:
    """Returns True to the first caller that wants to interrupt a run, False to all others."""
    with _lock:
        if recorder in _insisting:
            return False
        _insisting.append(recorder)
        return True


def _insist(recorder: Recorder) -> None:
    try:
        if recorder.over.wait(STOP_PATIENCE_S) or recorder.thread != threading.main_thread().ident:
            return
        with _lock:  # the run cannot become over between the question and the signal: see `end`
            if recorder.over.is_set():
                return
            interrupt_main()
        recorder.over.wait(STOP_PATIENCE_S)  # the interrupt is on its way
        with _lock:
            if not recorder.over.is_set() and recorder not in _unheard:
                _unheard.append(recorder)
    finally:
        with _lock:
            _insisting.remove(recorder)


def end(recorder: Recorder) -> None:
    """Marks a run as over, so that a pending interrupt does not hit the code after it."""
    with _lock:
        recorder.over.set()
        _unheard[:] = [other for other in _unheard if other is not recorder]


def held_up(recorder: Recorder) -> str:
    """Names the call in C in which a run goes on after its interrupt; empty if the run has ended."""
    frame = sys._current_frames().get(recorder.thread) if recorder in _unheard else None
    if frame is None:
        return ""
    where = f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
    return f"a call that no interrupt reaches goes on ({where}): restart the kernel if it does not return"


def interrupt_main() -> None:
    """Sends SIGINT to the main thread, as the kernel's interrupt does, also during a system call."""
    ident = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and ident is not None:
        signal.pthread_kill(ident, signal.SIGINT)
    else:  # Windows
        signal.raise_signal(signal.SIGINT)


@contextmanager
def handlers_put_back() -> Iterator[None]:
    """Restores signal handlers and timers at the end of the context (on the main thread)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    timers = [getattr(signal, name) for name in _TIMERS if before and hasattr(signal, name)]
    off = [timer for timer in timers if not any(signal.getitimer(timer))]
    watched = _torch_watches_workers()
    try:
        yield
    finally:
        for timer in off:  # an alarm that code inside left running would meet no handler and end the kernel
            signal.setitimer(timer, 0.0)
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
                if number == getattr(signal, "SIGCHLD", None) and not watched and _torch_watches_workers():
                    # torch sets its handler once in a process, and would wait in vain for a worker that dies later.
                    sys.modules[_WORKER_SIGNALS]._SIGCHLD_handler_set = False  # type: ignore[attr-defined]


def _torch_watches_workers() -> bool:
    """True if torch has set its signal handler for loader workers that die."""
    return bool(getattr(sys.modules.get(_WORKER_SIGNALS), "_SIGCHLD_handler_set", False))


@contextmanager
def ends_on_threads(kind: type[BaseException]) -> Iterator[list[str]]:
    """Keeps an exception of ours that ends a loop on another thread from being printed.

    Args:
        kind: class of the exception.

    Yields:
        What those said that ended threads meanwhile: the run's outcome.
    """
    before, outcomes = threading.excepthook, list[str]()

    def hook(args: threading.ExceptHookArgs) -> None:
        if isinstance(args.exc_value, kind):
            outcomes.append(str(args.exc_value))
        else:
            before(args)

    threading.excepthook = hook
    try:
        yield outcomes
    finally:
        if threading.excepthook is hook:
            threading.excepthook = before


@contextmanager
def noted(ours: Callable[[], bool], tell: Callable[[], None]) -> Iterator[list[int]]:
    """Records the user's interrupts, even those that the code inside catches, and passes them on.

    Args:
        ours: returns True if gpu_doctor itself has requested the end.
        tell: called when an interrupt comes.

    Yields:
        The signals so far; always empty outside the main thread, or if interrupts are ignored.
    """
    came = list[int]()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield came
        return
    handled = before

    def note(number: int, frame: FrameType | None) -> None:
        if not ours():
            came.append(number)
            tell()
        handled(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


class Interrupts:
    """Holds interrupts back between `hold` and `release`, so that restoring is not left half done."""

    def __init__(self) -> None:
        self._before: Any = None
        self._came: list[tuple[int, Any]] = []

    def hold(self) -> None:
        """Starts to hold interrupts back; does nothing outside the main thread."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and before is not None:
            self._before = before
            signal.signal(signal.SIGINT, lambda number, frame: self._came.append((number, frame)))

    def release(self) -> None:
        """Restores the previous handler."""
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def deliver(self) -> None:
        """Passes a held interrupt to the present handler, once; does nothing if interrupts are ignored.

        Raises:
            Any exception of the handler, normally KeyboardInterrupt.
        """
        if self._came and callable(self._before):
            self._before(*self._came[0])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delays an interrupt to the end of the context, so that restoring is not left half done.

    Raises:
        KeyboardInterrupt: The user interrupted; raised at the end. Another handler may raise something else.
    """
    interrupts = Interrupts()
    interrupts.hold()
    try:
        yield
    finally:
        interrupts.release()
    interrupts.deliver()

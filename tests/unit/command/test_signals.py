"""SIGTERM in a program under observation: its own handler has its way, also where it calls the one before it."""

from __future__ import annotations

import gc
import signal
import threading
import weakref

from gpu_doctor.signals import before_sigterm


def test_a_handler_of_the_program_has_its_way() -> None:
    ended, came = list[int](), list[int]()
    with before_sigterm(lambda: ended.append(1)):
        before = signal.getsignal(signal.SIGTERM)

        def own(number: int, frame: object) -> None:
            came.append(number)
            if callable(before):
                before(number, None)

        signal.signal(signal.SIGTERM, own)
        signal.raise_signal(signal.SIGTERM)
    assert came == [signal.SIGTERM] and not ended
    assert signal.getsignal(signal.SIGTERM) is own
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_nothing_is_left_behind_and_other_threads_set_nothing() -> None:
    seen = list[object]()

    def elsewhere() -> None:
        with before_sigterm(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    with before_sigterm(lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert seen == [signal.SIG_DFL] and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_was_to_be_called_is_let_go_of() -> None:
    class End:
        def __call__(self) -> None: ...

    end = End()
    there = weakref.ref(end)
    with before_sigterm(end):
        pass
    del end
    gc.collect()
    assert there() is None

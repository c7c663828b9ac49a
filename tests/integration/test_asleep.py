"""A thread that waits for another one is not told from one that computes; a thread that sleeps is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest

from gpu_doctor.capture.lines.kernel import Kernel


def naps(over: threading.Event) -> None:
    while not over.is_set():
        time.sleep(0.2)


def waits_for_another(over: threading.Event) -> None:
    over.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is known of threads elsewhere")
@pytest.mark.parametrize(("waits", "told"), [(naps, True), (waits_for_another, False)])
def test_who_sleeps_is_told_and_who_waits_for_a_thread_is_not(
    waits: Callable[[threading.Event], object], told: bool
) -> None:
    over, kernel = threading.Event(), Kernel()
    thread = threading.Thread(target=waits, args=(over,))
    thread.start()
    try:
        until, seen = time.monotonic() + 1.0, False
        while time.monotonic() < until and not seen:
            time.sleep(0.05)
            seen = kernel.sleeps(thread.ident or 0)
        assert seen is told
    finally:
        over.set()
        thread.join()
        kernel.close()


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is known of threads elsewhere")
def test_a_thread_that_has_the_id_of_one_that_ended_is_found() -> None:
    kernel = Kernel()
    try:
        for _ in range(3):
            over = threading.Event()
            thread = threading.Thread(target=naps, args=(over,))
            thread.start()
            try:
                until, seen = time.monotonic() + 2.0, False
                while time.monotonic() < until and not seen:
                    time.sleep(0.05)
                    seen = kernel.sleeps(thread.ident or 0)
                assert seen
            finally:
                over.set()
                thread.join()
    finally:
        kernel.close()

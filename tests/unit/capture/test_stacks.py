"""Another thread's stack in one piece, with the collector at rest and as it was afterwards."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

import pytest

from gpu_doctor.capture.lines import stacks
from gpu_doctor.capture.lines.stacks import stack_of

DEEP = 300


@contextmanager
def standing(depth: int = DEEP) -> Iterator[int]:
    """A thread so deep in calls; its id."""
    there, go = threading.Event(), threading.Event()

    def inner(left: int) -> None:
        if left:
            return inner(left - 1)
        there.set()
        go.wait(30)
        return None

    thread = threading.Thread(target=inner, args=(depth,))
    thread.start()
    assert there.wait(30) and thread.ident is not None
    yield thread.ident
    go.set()
    thread.join()


def names(stack: list[FrameType]) -> list[str]:
    return [one.f_code.co_name for one in stack]


def test_the_innermost_frame_is_first_and_all_are_there() -> None:
    with standing() as thread:
        stack = stack_of(thread)
        assert names(stack)[:2] == ["wait", "wait"] and names(stack).count("inner") == DEEP + 1
        assert all(one.f_back is two for one, two in pairwise(stack)) and stack[-1].f_back is None


def test_of_a_thread_that_is_none_there_is_nothing_and_of_a_very_deep_one_not_all() -> None:
    assert stack_of(-1) == []
    with standing() as thread:
        plain = list(stacks.outwards(sys._current_frames()[thread], stacks.DEEPEST))
        assert stack_of(thread) == plain
        limit, stacks.DEEPEST = stacks.DEEPEST, 50  # type: ignore[misc]
        try:
            assert len(stack_of(thread)) == 50
        finally:
            stacks.DEEPEST = limit  # type: ignore[misc]


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_as_it_was(on: bool) -> None:
    try:
        (gc.enable if on else gc.disable)()
        stack_of(threading.get_ident())
        assert gc.isenabled() == on
    finally:
        gc.enable()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other Pythons start none there by themselves")
def test_no_collection_starts_while_frames_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finalizer that waits would let the other thread leave the frames that are being made."""
    order: list[str] = []
    usual, enable = gc.get_threshold(), gc.enable

    def enabled() -> None:
        order.append("all made")
        enable()

    monkeypatch.setattr(gc, "enable", enabled)
    with standing() as thread:
        gc.collect()
        gc.callbacks.append(lambda phase, info: order.append("collecting"))
        try:
            gc.set_threshold(DEEP // 2)
            stack = stack_of(thread)
        finally:
            gc.set_threshold(*usual)
            gc.callbacks.pop()
    assert len(stack) > DEEP and order[0] == "all made"


def test_what_fails_in_between_leaves_the_collector_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> dict[int, FrameType]:
        raise MemoryError

    monkeypatch.setattr(sys, "_current_frames", failing)
    with pytest.raises(MemoryError):
        stack_of(1)
    assert gc.isenabled()


class Held:
    """Can be referred to weakly."""


def test_nothing_of_the_stack_outlives_the_list() -> None:
    there, go = threading.Event(), threading.Event()
    seen: list[weakref.ref[Held]] = []

    def stand() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        there.set()
        go.wait(30)

    thread = threading.Thread(target=stand)
    gc.disable()
    try:
        thread.start()
        assert there.wait(30) and thread.ident is not None
        stack = stack_of(thread.ident)
        assert "stand" in names(stack)
        go.set()
        thread.join()
        del stack
        assert seen[0]() is None
    finally:
        gc.enable()

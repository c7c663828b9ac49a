"""Whatever is put on comes off, in reverse order, and never over somebody else's patch."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from gpu_doctor.capture import patching
from gpu_doctor.capture.patching import Patches


class Base:
    """Has a method that a subclass inherits."""

    def act(self) -> str:
        """Says who it is."""
        return "base"


class Child(Base):
    """Inherits it."""


def louder(original: Any) -> Any:
    """A wrapper that can be seen."""
    return lambda *args: original(*args) + "!"


def test_a_wrapper_is_put_on_and_taken_off() -> None:
    original = Base.__dict__["act"]
    with Patches() as patches:
        patches.wrap(Base, "act", louder)
        assert Base().act() == "base!"
        assert patching.active() == ("Base.act",)
    assert Base.__dict__["act"] is original
    assert patching.active() == ()
    assert patches.notes == []


def test_an_inherited_attribute_is_deleted_again() -> None:
    with Patches() as patches:
        patches.wrap(Child, "act", louder)
        assert (Child().act(), Base().act()) == ("base!", "base")
    assert "act" not in vars(Child)


def test_an_instance_can_be_wrapped_alone() -> None:
    one, other = Base(), Base()
    with Patches() as patches:
        patches.wrap(one, "act", louder)
        assert (one.act(), other.act()) == ("base!", "base")
        assert patching.active() == ("Base.act",)
    assert vars(one) == {}


def test_a_module_and_a_static_method_come_back_as_they_were() -> None:
    class Box:
        @staticmethod
        def make() -> str:
            return "made"

    before, run = Box.__dict__["make"], threading.settrace
    with Patches() as patches:
        patches.wrap(Box, "make", lambda original: staticmethod(louder(original)))
        patches.wrap(threading, "settrace", lambda original: original)
        assert Box.make() == "made!"
    assert Box.__dict__["make"] is before
    assert threading.settrace is run


def test_wrappers_on_wrappers_come_off_last_first() -> None:
    with Patches() as patches:
        patches.wrap(Base, "act", louder)
        patches.wrap(Base, "act", louder)
        assert Base().act() == "base!!"
    assert Base().act() == "base"


def test_somebody_elses_patch_is_left_alone_and_said() -> None:
    original = Base.act
    try:
        with Patches() as patches:
            patches.wrap(Base, "act", louder)
            theirs = Base.act = lambda self: "theirs"  # type: ignore[method-assign]
        assert Base.act is theirs
        (note,) = patches.notes
        assert note.startswith("Base.act was replaced by other code")
        assert patching.active() == ()
    finally:
        Base.act = original  # type: ignore[method-assign]


def test_one_failing_undo_keeps_no_other_on() -> None:
    removed: list[str] = []

    def fail() -> None:
        raise RuntimeError("stuck")

    with Patches() as patches:
        patches.hook("first", lambda: removed.append("first"))
        patches.hook("second", fail)
        patches.wrap(Base, "act", louder)
    assert removed == ["first"]
    assert patches.notes == ["second could not be restored: stuck"]
    assert patching.active() == ()
    assert Base().act() == "base"


def test_everything_comes_off_after_an_exception() -> None:
    def fail() -> None:
        with Patches() as patches:
            patches.wrap(Base, "act", louder)
            raise KeyError("user's")

    with pytest.raises(KeyError):
        fail()
    assert Base().act() == "base"


def test_what_is_not_there_is_not_patched() -> None:
    with Patches() as patches:
        with pytest.raises(AttributeError):
            patches.wrap(Base, "missing", louder)
        assert patching.active() == ()


def test_restoring_twice_does_nothing() -> None:
    patches = Patches()
    patches.wrap(Base, "act", louder)
    patches.restore()
    patches.restore()
    assert Base().act() == "base"


def test_of_two_patches_on_one_attribute_either_may_come_off_first_and_nothing_is_kept() -> None:
    class Owner:
        def method(self) -> str:
            return "own"

    own = Owner.method
    for lower_first in (True, False):
        lower, upper = Patches(), Patches()
        lower.wrap(Owner, "method", lambda original: lambda self: "lower " + original(self))
        upper.wrap(Owner, "method", lambda original: lambda self: "upper " + original(self))
        assert Owner().method() == "upper lower own"
        for one in (lower, upper) if lower_first else (upper, lower):
            one.restore()
        assert Owner.method is own and not (lower.notes or upper.notes)
    patches = Patches()
    patches.wrap(Owner, "method", lambda original: original)
    Owner.method = own  # type: ignore[method-assign]
    patches.wrap(Owner, "method", lambda original: lambda self: "ours")
    Owner.method = lambda self: "theirs"  # type: ignore[method-assign]
    patches.restore()
    assert Owner().method() == "theirs" and patches.notes and not patching._standing


def test_after_they_are_taken_off_nothing_is_put_on_any_more() -> None:
    class Owner:
        name = "own"

    patches, removed = Patches(), list[str]()
    patches.restore()
    patches.wrap(Owner, "name", lambda original: "ours")
    patches.hook("late", lambda: removed.append("late"))
    assert Owner.name == "own" and removed == ["late"] and "late" not in patching.active()


def test_a_patch_that_another_thread_puts_on_while_all_come_off_comes_off_too() -> None:
    class Slow(type):
        def __setattr__(cls, name: str, value: object) -> None:
            ends[-1].restore()
            super().__setattr__(name, value)

    class Owner(metaclass=Slow):
        name = "own"

    def ending(original: str) -> str:
        ends[0].restore()
        return "ours"

    ends = [Patches()]
    ends[0].wrap(Owner, "name", ending)  # between the look whether it is over and the registration
    assert Owner.name == "own"
    ends.append(Patches())
    ends[1].wrap(Owner, "name", lambda original: "ours")  # between the registration and the replacement
    assert Owner.name == "own" and not patching.active() and not patching._standing


def interrupted_once() -> Patches:
    """Two changes, the removal of which is interrupted the first time."""
    asked: list[int] = []

    def remove() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise KeyboardInterrupt

    patches = Patches()
    patches.wrap(Base, "act", louder)
    patches.hook("a hook", remove)
    return patches


def test_what_an_interrupt_left_on_comes_off_when_asked_again() -> None:
    original, patches = Base.__dict__["act"], interrupted_once()
    with pytest.raises(KeyboardInterrupt):
        patches.restore()
    patches.restore()
    assert Base.__dict__["act"] is original and patching.active() == ()


def test_the_end_of_a_context_is_not_interrupted_halfway() -> None:
    original, patches = Base.__dict__["act"], interrupted_once()
    with pytest.raises(KeyboardInterrupt):
        patches.__exit__()
    assert Base.__dict__["act"] is original and patching.active() == ()

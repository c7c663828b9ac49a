"""garbage-collected-each-step: gc.collect() in the loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.found import asked, named
from tests.support.recordings import Loop, calling

RULE = "garbage-collected-each-step"


def test_sick() -> None:
    recording = calling(Loop(other=10.0), "collect-garbage", 0.5, 100)
    finding = asked(RULE, recording)
    assert finding is not None and finding.cost_share == pytest.approx(0.5)
    assert named(recording) == [RULE]


def test_well() -> None:
    assert asked(RULE, calling(Loop(), "collect-garbage", 0.01, 1)) is None
    assert asked(RULE, Loop().recording()) is None


def test_other_chores_are_no_garbage() -> None:
    assert asked(RULE, calling(Loop(other=5.0), "checkpoint", 0.3, 10)) is None


def test_one_call_before_the_loop_gets_going_is_fine() -> None:
    assert asked(RULE, calling(Loop(other=5.0), "collect-garbage", 0.3, 1)) is None


def test_a_librarys_collections_can_be_made_short() -> None:
    """PyKEEN's training loop: no line of the user's collects, and freezing made 5.6 s of it 1.5 s."""
    recording = calling(Loop(other=10.0), "collect-garbage", 0.5, 100)
    (own,) = recording.chores or ()
    recording = replace(recording, chores=(replace(own, text="out = pipeline(training=train)"),))
    finding = asked(RULE, recording)
    assert finding is not None
    (cure,) = finding.prescriptions
    assert "gc.freeze()" in cure.code

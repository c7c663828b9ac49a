"""cache-emptied-each-step: torch.cuda.empty_cache() in the loop, on a GPU."""

from __future__ import annotations

import pytest

from tests.support.found import asked, named
from tests.support.recordings import Loop, calling, on_gpu

RULE = "cache-emptied-each-step"


def test_sick() -> None:
    recording = calling(on_gpu(other=2.0), "empty-cache", 0.1, 100)
    finding = asked(RULE, recording)
    assert finding is not None and finding.cost_share == pytest.approx(0.1)
    assert RULE in named(recording)


def test_well() -> None:
    assert asked(RULE, on_gpu().recording()) is None
    assert asked(RULE, calling(on_gpu(), "empty-cache", 0.01, 100)) is None


def test_on_a_cpu_the_call_does_nothing() -> None:
    assert asked(RULE, calling(Loop(other=2.0), "empty-cache", 0.1, 100)) is None


def test_a_call_between_two_phases_may_be_meant() -> None:
    assert asked(RULE, calling(on_gpu(other=2.0), "empty-cache", 0.1, 10)) is None

"""straggler: one rank works longer than the others, which wait for it."""

from __future__ import annotations

import pytest

from gpu_doctor.recording.setup import World
from tests.support.found import asked, named, sick
from tests.support.recordings import Loop, line

RULE = "straggler"


def ranked(*seconds: float, rank: int = 0, **changes: object) -> Loop:
    """A loop of 10 ms steps on one of so many ranks."""
    return Loop(**changes).but(setup={"world": World(len(seconds), rank, step_s_by_rank=seconds)})  # type: ignore[arg-type]


LATE = (0.004, 0.004, 0.009, 0.005)


def test_sick() -> None:
    found = sick(RULE, ranked(*LATE))
    assert found.cost_share == pytest.approx(0.5, rel=0.02)
    assert found.headline.startswith("Rank 2 is late")
    assert "this process" not in found.evidence[0]
    assert RULE in named(ranked(*LATE))


def test_the_late_rank_is_told_its_own_lines() -> None:
    found = sick(RULE, ranked(*LATE, rank=2, other=8.0, lines=(line("evaluate(model)", 0.4),)))
    assert "this process" in found.evidence[0]
    assert any("evaluate(model)" in one for one in found.evidence)


def test_well() -> None:
    assert asked(RULE, ranked(0.004, 0.0045, 0.0042, 0.0047)) is None


def test_one_rank_alone_has_nobody_to_wait_for() -> None:
    assert asked(RULE, ranked(0.009)) is None


def test_without_the_others_figures_nothing_is_said() -> None:
    silent = Loop(setup={"world": World(4, 0)})
    assert asked(RULE, silent) is None


def test_of_two_ranks_the_faster_one_is_the_usual() -> None:
    assert sick(RULE, ranked(0.003, 0.006)).headline.startswith("Rank 1 is late")

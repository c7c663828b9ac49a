"""communication-bound: collectives and unhidden reducing take a tenth of the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording.setup import Chore, World
from tests.support.found import asked, named, sick, surely
from tests.support.recordings import Loop, on_gpu, with_more, zipped

RULE = "communication-bound"
CALLED = (Chore("communication", 100, 0.2, file="a.py", line=3, function="f", text="dist.all_reduce(loss)"),)


def ranks(**known: object) -> Loop:
    """One of four ranks, with steps of 10 ms."""
    return Loop(setup={"world": World(4, 1, replicated=True, **known)})  # type: ignore[arg-type]


def test_sick() -> None:
    called = with_more(ranks(), chores=CALLED)
    found = sick(RULE, called)
    assert found.cost_share == pytest.approx(0.2, rel=0.03)
    assert any("dist.all_reduce(loss)" in one for one in found.evidence)
    assert any("was not measured" in one for one in found.evidence)
    assert RULE in named(called)


def test_reducing_that_the_backward_does_not_hide() -> None:
    found = sick(RULE, with_more(ranks(reduce_s=0.004, reduce_hidden_s=0.001), chores=()))
    assert found.cost_share == pytest.approx(0.3, rel=0.02)
    assert "bf16" in found.prescriptions[0].code


def test_two_loaders_in_one_step_are_reduced_once() -> None:
    reducing = with_more(ranks(reduce_s=0.004, reduce_hidden_s=0.001), chores=()).recording()
    assert surely(RULE, zipped(reducing)).cost_share == pytest.approx(0.3, rel=0.02)


def test_well() -> None:
    assert asked(RULE, with_more(ranks(reduce_s=0.004, reduce_hidden_s=0.0039), chores=())) is None
    assert asked(RULE, with_more(ranks(), chores=(Chore("communication", 100, 0.05),))) is None


def test_waiting_for_a_late_rank_is_not_communication() -> None:
    late = ranks(reduce_s=0.004, reduce_hidden_s=0.0, step_s_by_rank=(0.004, 0.004, 0.0077, 0.004))
    assert asked(RULE, with_more(late, chores=())) is None
    assert "straggler" in named(with_more(late, chores=()))


def test_a_process_alone_has_nobody_to_talk_to() -> None:
    alone = Loop(setup={"world": World(1, 0)})
    assert asked(RULE, with_more(alone, chores=CALLED)) is None


def test_the_class_says_so_on_any_device() -> None:
    reducing: dict[str, Any] = {"reduce_s": 0.004, "reduce_hidden_s": 0.001}
    unhidden = with_more(ranks(**reducing), chores=())  # 3 of 10 ms
    called = with_more(ranks(), chores=(replace(CALLED[0], wall_s=0.3),))
    gpu = on_gpu(setup={"world": World(4, 1, replicated=True, **reducing)})
    for loop in (unhidden, called, gpu):
        assert diagnose(loop.recording()).bottleneck == "communication"


def test_the_class_is_what_else_takes_the_time_where_ranks_hide_their_exchange() -> None:
    assert diagnose(ranks(reduce_s=0.004, reduce_hidden_s=0.0038).recording()).bottleneck == "compute"
    alone = Loop(setup={"world": World(1, 0, reduce_s=0.004, reduce_hidden_s=0.0)})
    assert diagnose(alone.recording()).bottleneck == "compute"
    waiting = ranks(reduce_s=0.004, reduce_hidden_s=0.001).but(wait=30.0)
    assert diagnose(waiting.recording()).bottleneck == "input"

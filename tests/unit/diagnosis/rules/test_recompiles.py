"""recompiles: a function compiled again and again, and one that torch has given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.recording.setup import Compilation, InputFacts
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "recompiles"
FIRST = Compilation("forward", "<cell>", 6, at_s=0.0, wall_s=2.0)
NUMBER = replace(FIRST, reason="self.epoch == 3", guard_line=7, guard_text="return self.l(x) * self.epoch")
SIZE = replace(FIRST, reason="tensor 'x' size mismatch at index 0. expected 4, actual 5")


def versions(again: Compilation, count: int, wall_s: float = 0.1, given_up: bool = False) -> tuple[Compilation, ...]:
    """The first one while the loop warms up, the others one by one after it (10 ms a step, 100 of them)."""
    later = [replace(again, at_s=0.1 + 0.12 * n, wall_s=wall_s) for n in range(count)]
    end = (replace(again, at_s=0.99, wall_s=0.0, given_up=True),) if given_up else ()
    return (FIRST, *later, *end)


def compiled(*found: Compilation, loop: Loop | None = None) -> Loop:
    loop = Loop() if loop is None else loop
    return loop.but(setup={**loop.setup, "compilations": found})


SICK = compiled(*versions(NUMBER, 6))


def test_sick() -> None:
    found = sick(RULE, SICK)  # 99 steps of 10 ms after the first
    assert found.cost_share == pytest.approx(0.6 / 0.99, rel=0.01)
    assert found.kind == "lost" and "forward (cell line 6) 7 times" in found.headline
    (said,) = found.evidence
    assert said.endswith("self.epoch == 3 (line 7: return self.l(x) * self.epoch)")
    assert "register_buffer" in found.prescriptions[0].code
    assert top(SICK) == RULE and found.risk == ""


def test_sizes_that_change() -> None:
    found = sick(RULE, compiled(*versions(SIZE, 6)))
    assert "mark_dynamic" in found.prescriptions[0].code


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("GLOBAL_STATE changed: grad_mode", "torch.no_grad()"),
        ("self.training == True", "torch.no_grad()"),
        ("2 <= x.size()[0] <= 8", "mark_dynamic"),
        ("___check_obj_id(fn, 9437)", "before the loop"),
        ("k == 3", "register_buffer"),
    ],
)
def test_the_cure_is_chosen_by_torchs_reason(reason: str, code: str) -> None:
    assert code in sick(RULE, compiled(*versions(replace(FIRST, reason=reason), 6))).prescriptions[0].code


def test_it_explains_steps_with_new_shapes() -> None:
    shapes = InputFacts(looked_at=100, shapes=30, shape=(32, 128), new_shape_steps=29, new_shape_s=0.4)
    loop = Loop(setup={"inputs": shapes})
    assert named(loop) == ["changing-shapes"]
    assert named(compiled(*versions(SIZE, 6), loop=loop)) == [RULE]


def test_what_torch_has_given_up_is_a_risk_where_compiling_cost_little() -> None:
    found = sick(RULE, compiled(*versions(NUMBER, 7, wall_s=0.001, given_up=True), loop=on_gpu()))
    assert found.kind == "hint" and found.risk
    assert "gave up on forward (cell line 6) after 8 versions" in found.headline
    dear = sick(RULE, compiled(*versions(NUMBER, 7, given_up=True)))
    assert dear.risk == "" and any("runs uncompiled" in one for one in dear.evidence)


def test_well() -> None:
    assert asked(RULE, Loop()) is None  # nobody listened
    assert asked(RULE, compiled()) is None
    assert asked(RULE, compiled(FIRST)) is None


def test_one_version_for_sizes_and_one_for_evaluation_are_sound() -> None:
    """The nearest false alarm: they come once, and a long run does not feel them."""
    once = (SIZE, replace(FIRST, reason="GLOBAL_STATE changed: grad_mode"))
    assert asked(RULE, compiled(FIRST, *(replace(one, at_s=0.5, wall_s=0.2) for one in once))) is None


def test_many_versions_in_the_warm_up_cost_nothing_later() -> None:
    early = [replace(one, at_s=0.001 * n) for n, one in enumerate(versions(NUMBER, 6))]
    assert asked(RULE, compiled(*early)) is None


def test_functions_are_told_apart() -> None:
    other = [replace(one, function="loss", line=40) for one in versions(SIZE, 2)]
    found = sick(RULE, compiled(*versions(NUMBER, 3), *other))
    assert found.cost_share == pytest.approx(0.3 / 0.99, rel=0.01)

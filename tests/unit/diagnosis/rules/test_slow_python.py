"""slow-python: the loop's own code outside of the phases, with its lines, whether or not there is a cure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import LineCost, Recording
from gpu_doctor.recording.setup import Chore
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, calling, line, on_gpu

RULE = "slow-python"
LOGGING = Loop(other=10.0)
PLOT = line("plot(history)", 0.5)
UPDATES = Loop(other=12.0, optimizer=0.0, setup={"optimizers": (), "optimizer_facts": ()})
"""A loop that changes its parameters itself."""


def test_sick() -> None:
    found = sick(RULE, LOGGING.but(lines=(PLOT, line("y = model(x)", 0.3, "forward"))))
    assert found.cost_share == pytest.approx(0.5, abs=0.01) and found.kind == "lost"
    assert "plot(history)" in found.headline and "model(x)" not in " ".join((found.headline, *found.evidence))
    assert found.prescriptions[0].predicted_speedup is None, "what is left of such work, nobody measured"
    assert top(LOGGING) == RULE and diagnose(LOGGING.recording()).bottleneck == "host"


@pytest.mark.parametrize("in_torch", [False, True])
@pytest.mark.parametrize("outside_torch", [False, True])
def test_all_outside_of_the_phases_is_named_whatever_it_does(in_torch: bool, outside_torch: bool) -> None:
    """A copy of the weights after each epoch, a conversion of slices, and sampling an action are no training."""
    copied = replace(line("best = copy.deepcopy(model)", 0.5), in_torch=in_torch, outside_torch=outside_torch)
    assert sick(RULE, LOGGING.but(lines=(copied,))).cost_share == pytest.approx(0.5, abs=0.01)


def test_several_lines_share_a_headline_with_the_dearest() -> None:
    acts = tuple(replace(line(text, 0.2), line=7 + i) for i, text in enumerate(("a = pi.sample()", "env.step(a)")))
    found = sick(RULE, LOGGING.but(lines=acts))
    assert "25 %" in found.headline and all(any(one.text in said for said in found.evidence) for one in acts)


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(other=0.9)) is None
    assert asked(RULE, Loop(other=0.0, loss=10.0)) is None, "the loss is computing"


def test_what_watching_itself_may_have_caused_is_nobodys() -> None:
    recording = LOGGING.but(lines=(PLOT,)).recording()
    for part, named_too in ((0.02, True), (0.2, False)):
        watched = replace(recording, overhead_s=part * recording.duration_s)
        assert (RULE in [one.rule for one in diagnose(watched).findings]) == named_too
        for ours, apart in ((0.05, True), (0.15, False)):  # what our threads took beside the loop is no matter then
            beside = replace(watched, steps=replace(watched.steps, ours_s=ours * watched.steps.wall_s))
            assert (RULE in [one.rule for one in diagnose(beside).findings]) == apart
    taken = replace(recording, steps=replace(recording.steps, ours_s=0.05 * recording.steps.wall_s))
    assert diagnose(taken).findings[0].cost_share == pytest.approx(0.45, abs=0.01)


def test_python_between_forward_and_backward_is_no_loss() -> None:
    metric = replace(line("acc = accuracy(out.tolist(), y)", 0.25), before_backward=True, outside_torch=True)
    loss = replace(line("loss = criterion(out, y)", 0.25), before_backward=True)
    loop = Loop(loss=10.0, lines=(metric, loss))
    assert sick(RULE, loop).cost_share == pytest.approx(0.25, abs=0.01)
    assert asked(RULE, loop.but(lines=(loss, replace(metric, outside_torch=False)))) is None


@pytest.mark.parametrize("loop", [UPDATES, LOGGING.but(forward=0.0)], ids=["updates by hand", "no module"])
def test_where_nothing_tells_training_from_own_code_only_python_counts(loop: Loop) -> None:
    update = line("p.data.add_(p.grad, alpha=-lr)", 0.4)
    assert asked(RULE, loop.but(lines=(update,))) is None
    plot = replace(line("plot(history)", 0.2), line=9, outside_torch=True)
    found = sick(RULE, loop.but(lines=(update, plot)))
    assert found.cost_share < 0.3 and not any("p.grad" in one for one in found.evidence)


def test_behind_a_busy_gpu_it_is_free() -> None:
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_costly_calls_have_causes_of_their_own() -> None:
    assert asked(RULE, calling(LOGGING, "checkpoint", 0.45, 10)) is None
    both = LOGGING.but(lines=(line("plot(history)", 0.3), LineCost("<cell>", 9, "f", "gc.collect()", "other", 0.2)))
    left = asked(RULE, calling(both, "collect-garbage", 0.2, 100))
    assert left is not None and left.cost_share == pytest.approx(0.3, abs=0.01)
    assert not any("gc.collect" in one for one in left.evidence)


def stalled(*at: int, steps_per_epoch: int = 1000) -> Recording:
    """A healthy loop of 100 steps of 10 ms, a few of which took 300 ms more outside of all phases."""
    recording = Loop(other=0.2, steps=100, steps_per_epoch=steps_per_epoch).recording()
    wall_s = recording.steps.wall_s.copy()
    wall_s[list(at)] += 0.3
    return replace(recording, steps=replace(recording.steps, wall_s=wall_s))


@pytest.mark.parametrize(
    ("recording", "told"),
    [
        (stalled(50), False),
        (stalled(20, 50, 80), True),
        (stalled(50, steps_per_epoch=50), True),
    ],
    ids=["a single step that stood still", "several", "between two epochs"],
)
def test_what_comes_once_is_no_habit_of_the_loop_but_between_epochs(recording: Recording, told: bool) -> None:
    diagnosis = diagnose(recording)
    assert (diagnosis.vitals.other_share or 0.0) > 0.2, "where the time went is said as it was"
    assert (RULE in [one.rule for one in diagnosis.findings]) == told == (diagnosis.bottleneck == "host")


def test_a_single_chore_is_not_taken_out_twice() -> None:
    busy = Loop(other=5.0, steps=100).recording()
    wall_s = busy.steps.wall_s.copy()
    wall_s[50] += 0.3
    saved = replace(busy, steps=replace(busy.steps, wall_s=wall_s), chores=(Chore("checkpoint", 1, 0.3, other_s=0.3),))
    share = next(one.cost_share for one in diagnose(saved).findings if one.rule == RULE)
    assert share == pytest.approx(0.5 / (1.5 + 0.3), abs=0.02)


def test_where_no_look_fell_the_clock_still_speaks() -> None:
    found = sick(RULE, LOGGING)
    assert found.cost_share == pytest.approx(0.5, abs=0.01) and "`" not in found.headline


def test_a_part_too_small_for_a_cause_of_its_own_is_counted_here() -> None:
    made = replace(line("yield rows[i]", 0.15), pulled=True)
    few = replace(made, share=0.05)
    assert named(LOGGING.but(lines=(PLOT, made))) == ["slow-python", "slow-generator"]
    assert named(LOGGING.but(lines=(PLOT, few))) == ["slow-python"]

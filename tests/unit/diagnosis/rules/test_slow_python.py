"""slow-python: the loop's own code between the phases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.python_pace import ROUND_S
from gpu_doctor.recording import LineCost, Recording, Speeds
from gpu_doctor.recording.setup import Chore
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, calling, line, on_gpu

RULE = "slow-python"
LOGGING = Loop(other=10.0)


def test_sick() -> None:
    named = sick(RULE, LOGGING)
    assert named.cost_share == pytest.approx(0.5)
    cure = named.prescriptions[0]
    assert cure.predicted_speedup == pytest.approx(2.0, rel=0.1) and cure.predicted_low == pytest.approx(1.9, rel=0.01)
    assert top(LOGGING) == RULE


def test_what_the_interpreter_takes_between_the_calls_is_more_where_python_is_slow() -> None:
    plain = Loop(forward=0.2, backward=0.2, optimizer=0.1, other=0.1)
    assert sick(RULE, plain).cost_share == pytest.approx(0.1 / 0.6, rel=0.01)
    assert asked(RULE, plain.but(setup={"speeds": Speeds(python_round_s=2 * ROUND_S)})) is None


def test_the_rest_gets_faster_without_it() -> None:
    """Measured: 12 ms of sleep in a step of 16.7 ms, 3.6x by Amdahl, 4.9x in truth: the rest was cold after it."""
    loop = Loop(forward=1.5, backward=2.2, optimizer=0.97, other=12.06, setup={"parameter_bytes": 3_250_000})
    cure = sick(RULE, loop).prescriptions[0]
    assert cure.predicted_low and cure.predicted_speedup and cure.predicted_high
    assert cure.predicted_low < 3.6 < cure.predicted_speedup < 4.9 < cure.predicted_high
    assert cure.predicted_speedup == pytest.approx(4.9, rel=0.15)
    assert cure.at_most, "and the bound that is said is the upper end, not Amdahl's"


BOOKS = """
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for p in model.parameters():
        norms.append(p.grad.norm().item())
    opt.step()
"""


def test_what_computes_in_torch_and_trains_nothing_can_go_too() -> None:
    norm = LineCost("<cell>", 7, "<module>", "norms.append(p.grad.norm().item())", "other", 0.3, in_torch=True)
    clip = LineCost("<cell>", 5, "<module>", BOOKS.splitlines()[4].strip(), "other", 0.2, in_torch=True)
    found = sick(RULE, LOGGING.but(source=BOOKS, lines=(norm, clip)))
    assert found.cost_share == pytest.approx(0.3)
    assert any("p.grad.norm()" in one for one in found.evidence)
    assert not any("clip" in one for one in found.evidence)
    assert asked(RULE, LOGGING.but(source=BOOKS, lines=(clip,))) is None


def test_it_names_the_lines() -> None:
    named = sick(RULE, LOGGING.but(lines=(line("plot(history)", 0.48), line("y = model(x)", 0.3, "forward"))))
    assert any("plot(history)" in one for one in named.evidence)
    assert not any("model(x)" in one for one in named.evidence)


def test_a_loop_that_predicts_has_no_backward_to_be_outside_of() -> None:
    predicts = Loop(backward=0.0, optimizer=0.0, other=5.0, setup={"optimizers": ()})
    assert sick(RULE, predicts).headline.endswith("outside of fetch and forward.")


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, Loop(other=0.9)) is None


def test_the_loss_between_forward_and_backward_is_compute() -> None:
    assert asked(RULE, Loop(other=0.0, loss=10.0)) is None


def test_what_the_lines_spend_inside_torch_is_not_python() -> None:
    assert asked(RULE, LOGGING.but(lines=(line("z = x @ w", 0.5, in_torch=True),))) is None


def test_a_few_operations_on_whole_tensors_are_no_python() -> None:
    """As judged on an unseen loop: crops and flips of the whole batch, by indexing, took a fifth of it."""
    crop = replace(line("x = torch.where(flip, x.flip(-1), x)", 0.5), computes=True)
    assert asked(RULE, LOGGING.but(lines=(crop,))) is None
    plot = replace(line("plot(history)", 0.25), line=9)
    beside = sick(RULE, LOGGING.but(lines=(replace(crop, share=0.25), plot)))
    assert beside.cost_share == pytest.approx(0.25) and not any("flip" in one for one in beside.evidence)
    assert asked(RULE, LOGGING.but(lines=(replace(crop, beside="step"),))) is not None, "it trains nothing"
    hosts = on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0, lines=(crop,))
    assert asked(RULE, hosts) is not None, "while it computes, the GPU has nothing to do"


def test_a_call_that_keeps_the_lock_is_seen_by_few_looks_and_priced_by_the_clock() -> None:
    seldom = asked(RULE, LOGGING.but(lines=(line("rows = logits.tolist()", 0.02),)))
    never = asked(RULE, LOGGING.but(lines=(line("x = y", 0.5, phase="forward"),)))
    assert seldom is not None and never is not None
    assert seldom.cost_share == never.cost_share == pytest.approx(LOGGING.vitals().other_share)
    half = LOGGING.but(lines=(line("rows = logits.tolist()", 0.02), line("z = f(x)", 0.02, in_torch=True)))
    found = asked(RULE, half)
    assert found is not None and found.cost_share == pytest.approx(seldom.cost_share / 2)


def test_python_behind_a_busy_gpu_is_free() -> None:
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_a_forward_without_modules_cannot_be_told_from_python() -> None:
    assert asked(RULE, LOGGING.but(forward=0.0)) is None


def test_checkpoints_and_collections_have_rules_of_their_own() -> None:
    assert asked(RULE, calling(LOGGING, "checkpoint", 0.45, 10)) is None
    left = asked(RULE, calling(LOGGING, "collect-garbage", 0.2, 100))
    assert left is not None and left.cost_share == pytest.approx(0.3)


def test_the_line_of_a_chore_is_not_named() -> None:
    both = LOGGING.but(lines=(line("plot(history)", 0.3), LineCost("<cell>", 9, "f", "gc.collect()", "other", 0.2)))
    left = asked(RULE, calling(both, "collect-garbage", 0.2, 100))
    assert left is not None and left.cost_share == pytest.approx(0.3)
    assert not any("gc.collect" in one for one in left.evidence)


OWN_UPDATE = LOGGING.but(setup={"optimizers": (), "optimizer_facts": ()}, optimizer=0.0, other=12.0)
UPDATES = (
    "p.data.add_(p.grad, alpha=-lr)",
    "p -= lr * p.grad",
    "p.data += -lr * p.grad",
    "w.data *= 1 - decay",
    "p.data[rows] -= step",
    "param.grad.zero_()",
)


@pytest.mark.parametrize("text", UPDATES)
def test_an_update_written_by_hand_is_the_training(text: str) -> None:
    """As judged on the char-RNN tutorial, whose `p.data.add_(...)` was named first."""
    assert asked(RULE, OWN_UPDATE.but(lines=(line(text, 0.6),))) is None
    mixed = sick(RULE, OWN_UPDATE.but(lines=(line(text, 0.3), replace(line("plot(history)", 0.3), line=9))))
    assert mixed.cost_share == pytest.approx(0.3)
    assert any("plot" in one for one in mixed.evidence) and not any(text in one for one in mixed.evidence)
    assert (mixed.prescriptions[0].predicted_high or 9.0) < 2.0, "the update cannot go"


def test_beside_an_optimizer_such_a_line_is_pythons() -> None:
    norms = line("norms.append([p.grad.norm() for p in net.parameters()])", 0.5)
    assert asked(RULE, LOGGING.but(lines=(norms,))) is not None
    data = line("history.append(batch.data == 0)", 0.6)
    assert asked(RULE, OWN_UPDATE.but(lines=(data,))) is not None, "reads, and changes nothing"


def test_a_line_is_named_once() -> None:
    plot = line("plot(history)", 0.3)
    named = sick(RULE, LOGGING.but(lines=(plot, replace(plot, share=0.1))))
    assert [one for one in named.evidence if "plot" in one] == ["50 % at cell line 7 in <module>: plot(history)"]


def test_what_is_prepared_for_the_model_has_to_be_prepared() -> None:
    source = (
        "for x, y in loader:\n    x = augment(x)\n    loss = net(x)\n    loss.backward()\n    o.step()\n    log(loss)"
    )
    before = LineCost("cell", 2, "<module>", "x = augment(x)", "other", 0.5)
    after = LineCost("cell", 6, "<module>", "log(loss)", "other", 0.5)
    forward = LineCost("cell", 3, "<module>", "loss = net(x)", "forward", 0.2)
    loop = Loop(other=10.0, source=source)
    fed, logged = (sick(RULE, loop.but(lines=(one, forward))).prescriptions[0] for one in (before, after))
    assert fed.predicted_speedup is not None and logged.predicted_speedup is not None
    assert 1.5 < fed.predicted_speedup < logged.predicted_speedup
    assert fed.predicted_low is not None and logged.predicted_low is not None
    assert fed.predicted_low < 1.4 < logged.predicted_low


def test_what_the_interpreter_itself_takes_of_a_tiny_step_is_left_alone() -> None:
    # 200 us a step, 40 of them between the calls: there is no line to take out
    tiny = Loop(forward=0.05, backward=0.08, optimizer=0.03, other=0.04)
    assert asked(RULE, tiny) is None
    assert asked(RULE, tiny.but(other=0.1)) is not None


def test_a_few_looks_do_not_make_python_nothing() -> None:
    # half of the time outside of the phases; of five looks one fell there, and found torch
    recording = LOGGING.but(lines=(line("done = env.step(action)", 0.2, in_torch=True),)).recording()
    few, many = ([one.rule for one in diagnose(replace(recording, looks=looks)).findings] for looks in (5, 500))
    assert RULE in few and RULE not in many


def test_a_librarys_own_loop_is_not_the_users_to_thin_out() -> None:
    """As judged on stable-baselines3: the only line of the user's is the one that calls the loop."""
    call = line("model.learn(total_timesteps=500)", 0.4)
    trains = replace(call, phase="backward", share=0.3)
    (cure,) = sick(RULE, LOGGING.but(lines=(call, trains))).prescriptions
    assert cure.text.startswith("It runs inside of that call") and not cure.code
    own = replace(line("loss.backward(); log(net)", 0.3, "backward"), line=8)
    (cure,) = sick(RULE, LOGGING.but(lines=(replace(own, phase="other"), own))).prescriptions
    assert cure.text.startswith("Do it every n steps")


STEP = """for x, y in loader:
    x = augment(x)
    loss = net(x)
    loss.backward()
    for p in net.parameters(): p.grad.mul_(0.9)
    norms.append(norm(net))
    o.step()
"""


def of_step(row: int, share: float) -> LineCost:
    return LineCost("cell", row, "<module>", STEP.splitlines()[row - 1].strip(), "other", share)


@pytest.mark.parametrize(
    ("row", "said"), [(2, "It prepares the model's input"), (5, "Training needs it"), (6, "Do it every n steps")]
)
def test_only_what_trains_nothing_is_to_be_done_seldom(row: int, said: str) -> None:
    forward = LineCost("cell", 3, "<module>", "loss = net(x)", "forward", 0.2)
    loop = Loop(other=10.0, source=STEP)
    (cure,) = sick(RULE, loop.but(lines=(of_step(row, 0.5), forward))).prescriptions
    assert cure.text.startswith(said) and cure.predicted_speedup is not None
    assert ("step % 100" in cure.code) == (row == 6)


ASSIGNING = """\
def nearest(points, centres):
    return torch.tensor([min(range(9), key=lambda j: abs(centres[j].item() - p.item())) for p in points])
for step in range(steps):
    x = images[step]
    y = nearest(centroids[step], centres)
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    o.step()
"""


def test_what_the_loss_alone_needs_is_to_be_computed_in_one_call() -> None:
    """The images lie in memory: no batch is made there, whoever could do it in a worker."""
    text = ASSIGNING.splitlines()
    slow = LineCost("<cell>", 2, "nearest", text[1].strip(), "other", 0.5)
    forward = LineCost("<cell>", 6, "<module>", text[5].strip(), "forward", 0.2)
    loop = Loop(has_loader=False, other=10.0, source=ASSIGNING, lines=(slow, forward))
    loop = loop.but(setup={"flags": {"model_names": ("net",)}})
    found = sick(RULE, loop)
    assert found.cost_share == pytest.approx(0.5, abs=0.01) and named(loop) == [RULE]
    assert "line 2 in nearest" in found.evidence[1]
    (cure,) = found.prescriptions
    assert cure.text.startswith("The loss needs it") and "step % 100" not in cure.code
    after = ASSIGNING.replace("    x = images[step]", "    out = net(images[step])").replace("net(x)", "out")
    later = replace(slow, before_backward=True), replace(forward, line=4, text="out = net(images[step])")
    late = loop.but(source=after, lines=later, other=0.0, loss=10.0)
    assert named(late) == [RULE], "after the forward it is no loss either"
    fed = loop.but(source=ASSIGNING.replace("images[step]", "nearest(images, centres)"))
    assert named(fed) == ["slow-generator"], "the model is fed with it"


def test_both_are_said_where_both_take_a_good_part() -> None:
    lines = (of_step(5, 0.2), of_step(6, 0.3))
    first, second = sick(RULE, Loop(other=10.0, source=STEP, lines=lines)).prescriptions
    assert first.text.startswith("Do it every n steps") and first.predicted_speedup is not None
    assert second.text.startswith("Training needs it") and second.predicted_speedup is None
    # what the interpreter takes on the line of the loss is no line to cure
    loss = (of_step(3, 0.2), of_step(6, 0.3), LineCost("cell", 3, "<module>", "loss = net(x)", "forward", 0.2))
    assert len(sick(RULE, Loop(other=10.0, source=STEP, lines=loss)).prescriptions) == 1


def test_predictions_are_not_to_be_made_seldom() -> None:
    """Where nothing trains, no text tells what of the loop's own work is wanted: the results may be."""
    decoding = "        texts.extend(decode(model(x)))"
    predicting = Loop(backward=0.0, optimizer=0.0, other=10.0, lines=(line(decoding.strip(), 0.5),))
    found = sick(RULE, predicting.but(setup={"optimizers": ()}))
    assert found.prescriptions[0].text.startswith("It is what the loop is for")
    assert not any("step % 100" in one.code for one in found.prescriptions)


def test_lines_of_unknown_use_may_be_done_seldom() -> None:
    (cure,) = sick(RULE, LOGGING).prescriptions
    assert "step % 100" in cure.code


def stalled(*at: int) -> Recording:
    """A healthy loop of 100 steps of 10 ms, a few of which stood still for 300 ms outside of all phases."""
    recording = Loop(other=0.2, steps=100).recording()
    wall_s = recording.steps.wall_s.copy()
    wall_s[list(at)] += 0.3
    return replace(recording, steps=replace(recording.steps, wall_s=wall_s))


def test_a_single_step_that_stood_still_is_no_habit_of_the_loop() -> None:
    """Python's own garbage collection takes 0.1 s where a notebook holds much, once in a short run."""
    once = diagnose(stalled(50))
    assert (once.vitals.other_share or 0.0) > 0.2, "where the time went is said as it was"
    assert once.bottleneck == "compute" and RULE not in [one.rule for one in once.findings]
    often = diagnose(stalled(20, 50, 80))
    assert often.bottleneck == "host" and often.findings[0].rule == RULE
    assert often.findings[0].cost_share == pytest.approx(often.vitals.other_share or 0.0, abs=0.02)


def test_a_single_chore_is_not_taken_out_twice() -> None:
    """A checkpoint of 300 ms, once, beside Python that takes a third of each step: that third is still found."""
    busy = Loop(other=5.0, steps=100).recording()
    wall_s = busy.steps.wall_s.copy()
    wall_s[50] += 0.3
    saved = replace(busy, steps=replace(busy.steps, wall_s=wall_s), chores=(Chore("checkpoint", 1, 0.3, other_s=0.3),))
    share = next(one.cost_share for one in diagnose(saved).findings if one.rule == RULE)
    assert share == pytest.approx(0.5 / (1.5 + 0.3), abs=0.02)


def test_looks_at_the_edges_of_phases_are_next_to_nothing() -> None:
    edges = [line("opt.step()", 0.05, in_torch=True), line("opt.step()", 0.1, phase="optimizer")]
    plot = line("plot(history)", 0.45)
    found = sick(RULE, LOGGING.but(lines=(plot, *edges)))
    assert found.cost_share == pytest.approx(0.5, rel=0.02)
    resized = replace(
        edges[0], text="out = model(resize(x))", share=0.3
    )  # what calls a module may compute much besides
    half = LOGGING.but(lines=(replace(plot, share=0.2), resized, replace(resized, phase="forward")))
    assert sick(RULE, half).cost_share == pytest.approx(0.2)


def test_so_few_looks_that_none_need_have_fallen_there_are_no_evidence() -> None:
    # 15 % lie outside of every phase: of 100 looks some would be there, unless it keeps Python's lock; of 4 none need.
    recording = Loop(other=1.75, lines=(line("loss.backward()", 0.4, phase="backward"),)).recording()
    found = {looks: diagnose(replace(recording, looks=looks)).findings for looks in (4, 100)}
    assert [one.rule for one in found[100]] == [RULE] and found[4] == ()

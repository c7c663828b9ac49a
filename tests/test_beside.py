"""Which statements of a training loop train nothing is read off the text; what it does not tell trains."""

from __future__ import annotations

import pytest

from gpu_doctor.beside import beside_lines, needed_lines
from gpu_doctor.recording import LineCost

LOOP = """for x, y in loader:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    {}
    opt.step()
"""


def rows(source: str) -> set[int]:
    costs = [LineCost("<cell>", at, "f", one.strip(), "other", 0.1) for at, one in enumerate(source.splitlines(), 1)]
    return {one.line for one in beside_lines(source, costs)}


@pytest.mark.parametrize(
    "line",
    [
        "norms.append(model.weight.grad.norm())",
        "average = copy.deepcopy(model.state_dict())",
        "history[k] = 0.9 * history[k] + 0.1 * out.mean()",
        "acc = (out.argmax(1) == y).float().mean()",
        "plot(out)",
        "for p in model.parameters(): seen.append(p.std().item())",
    ],
)
def test_what_trains_nothing(line: str) -> None:
    assert rows(LOOP.format(line)) == {6}


@pytest.mark.parametrize(
    "line",
    [
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "for p in model.parameters(): p.grad *= 0.5",
        "for p in model.parameters(): p.grad = p.grad.clamp(-1, 1)",
        "model.weight.data[0] = 0.0",
        "noise.normal_()",
        "scheduler.step()",
        "opt.param_groups[0]['lr'] = schedule(i)",
        "y = smooth(y); loss = loss + y.sum()",
        "if out.isnan().any(): break",
    ],
)
def test_what_may_train(line: str) -> None:
    assert rows(LOOP.format(line)) == set()


def test_what_the_next_step_reads_trains() -> None:
    source = LOOP.replace("model(x)", "model(x, memory)")
    assert rows(source.format("memory = out.detach()")) == set()
    assert rows(source.format("other = out.detach()")) == {6}


def test_a_loop_that_trains_in_a_function_is_left_alone() -> None:
    assert rows("for x in loader:\n    step(x)\n    plot(x)\n") == set()
    assert rows("for x in") == set()


def test_only_the_innermost_loop_is_told_apart() -> None:
    source = (
        "for epoch in range(3):\n    for x in loader:\n        model(x).backward()\n        plot(x)\n    report(x)\n"
    )
    assert rows(source) == {4}


def test_the_other_statements_of_the_loop_are_needed() -> None:
    source = LOOP.format("acc = (out.argmax(1) == y).float().mean()")
    costs = [LineCost("<cell>", at, "f", one.strip(), "other", 0.1) for at, one in enumerate(source.splitlines(), 1)]
    assert {one.line for one in needed_lines(source, costs)} == {2, 3, 4, 5, 7}
    assert needed_lines("fit()", costs) == () == needed_lines("for x in (", costs)

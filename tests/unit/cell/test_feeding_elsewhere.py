"""What functions of other cells cost is the making of batches where nothing else of the loop can have called them."""

from __future__ import annotations

import pytest

from gpu_doctor.cell.batch_source import elsewhere_lines
from gpu_doctor.recording import LineCost

LOOP = """for x, y in batches(140):
    opt.zero_grad()
    loss = ce(net(x), y)
    loss.backward()
    opt.step()
    {}
"""
HIDDEN = LineCost("<another cell>", 8, "download", "time.sleep(0.009)", "other", 0.4)


def found(source: str) -> tuple[LineCost, ...]:
    return elsewhere_lines(source, (HIDDEN, LineCost("<cell>", 5, "<module>", "opt.step()", "other", 0.1)), ("net",))


@pytest.mark.parametrize("line", ["pass", "total += loss.item()", "losses.append(float(loss))", "print(loss.item())"])
def test_a_generator_of_another_cell(line: str) -> None:
    assert found(LOOP.format(line)) == (HIDDEN,)


@pytest.mark.parametrize("line", ["report(loss)", "tracker.log(loss)", "history.append(summary(loss))"])
def test_where_the_loop_calls_something_else_nobody_can_tell(line: str) -> None:
    assert found(LOOP.format(line)) == ()


def test_a_batch_made_in_the_loop_by_a_function_elsewhere() -> None:
    source = "for i in range(9):\n    x, y = make(i)\n" + LOOP.format("pass").split("\n", 1)[1]
    assert found(source) == (HIDDEN,)


def test_batches_that_are_there_already() -> None:
    assert found(LOOP.format("pass").replace("batches(140)", "data")) == ()
    assert found("") == ()

"""slow-generator: a loop that makes its own batches, told apart from other Python in the loop."""

from __future__ import annotations

import pytest
from found import asked, named, sick
from recordings import Loop, on_gpu

from gpu_doctor.recording import LineCost

RULE = "slow-generator"
SOURCE = """\
def batches():
    for i in range(100):
        yield decode(i)
for x in batches():
    loss = net(x).mean()
    loss.backward()
    opt.step()
    log(loss)
"""


def at(line: int, share: float, function: str = "<module>", in_torch: bool = False) -> LineCost:
    """What a line of the cell costs outside of every phase."""
    return LineCost("<cell>", line, function, SOURCE.splitlines()[line - 1].strip(), "other", share, in_torch)


SETUP = {"flags": {"model_names": ("net",)}}
MAKING = Loop(has_loader=False, other=10.0, source=SOURCE, setup=SETUP, lines=(at(3, 0.5, "batches"),))
LOGGING = MAKING.but(lines=(at(8, 0.5),))


def test_sick() -> None:
    found = sick(RULE, MAKING)
    assert found.cost_share == pytest.approx(0.5)
    assert any("yield decode(i)" in one for one in found.evidence)
    one, many, _ = found.prescriptions
    assert one.predicted_high == pytest.approx(1 / (0.5 + 0.6 / 20)) == many.predicted_high
    for cure in found.prescriptions:
        compile(cure.code, RULE, "exec")
    assert named(MAKING) == [RULE]


def test_making_inside_of_torch_counts() -> None:
    assert asked(RULE, MAKING.but(lines=(at(3, 0.5, "batches", in_torch=True),))) is not None


def test_two_causes_have_their_own_seconds_each() -> None:
    both = MAKING.but(lines=(at(3, 0.3, "batches"), at(8, 0.2)))
    assert named(both) == [RULE, "slow-python"]
    assert sick(RULE, both).cost_share == pytest.approx(0.3)
    assert sick("slow-python", both).cost_share == pytest.approx(0.2)


def test_well() -> None:
    assert asked(RULE, Loop(has_loader=False, source=SOURCE, setup=SETUP)) is None
    assert asked(RULE, MAKING.but(lines=(at(3, 0.05, "batches"),))) is None


def test_logging_is_not_the_making_of_batches() -> None:
    assert asked(RULE, LOGGING) is None
    assert named(LOGGING) == ["slow-python"]


def test_a_loop_with_a_loader_has_other_rules() -> None:
    assert asked(RULE, MAKING.but(has_loader=True)) is None
    assert RULE not in named(MAKING.but(has_loader=True))


def test_where_the_text_does_not_tell_it_is_python() -> None:
    assert named(MAKING.but(source="fit()")) == ["slow-python"]


def test_a_batch_that_costs_no_more_than_its_handing_over_is_left() -> None:
    tiny = MAKING.but(forward=0.2, backward=0.2, optimizer=0.1, other=0.5)
    assert asked(RULE, tiny) is None


def test_behind_a_busy_gpu_it_is_free() -> None:
    gpu = {"has_loader": False, "source": SOURCE, "setup": SETUP, "lines": MAKING.lines, "loader": {}}
    assert asked(RULE, on_gpu(**gpu, other=5.0, gpu_gap=0.1, gpu_work=14.9)) is None
    assert asked(RULE, on_gpu(**gpu, other=5.0, gpu_gap=5.0, gpu_work=10.0)) is not None


def test_on_one_core_that_computes_only_cheaper_batches_help() -> None:
    found = sick(RULE, MAKING.but(cores=1.0))
    assert [one.predicted_speedup for one in found.prescriptions] == [None]

"""host-sync: the host waits for the GPU, then the GPU for the host."""

from __future__ import annotations

import pytest

from tests.support.found import asked, sick, top
from tests.support.recordings import Loop, line, on_gpu

RULE = "host-sync"
READING = on_gpu(
    sync=6.0,
    syncs=3.0,
    forward=1.0,
    backward=1.0,
    optimizer=1.0,
    gpu_gap=2.0,
    gpu_work=7.0,
    caught_up=0.0,
    lines=(line("total += loss.item()", 0.6, "sync"),),
)


def test_sick() -> None:
    found = sick(RULE, READING)
    assert found.kind == "lost" and found.cost_share == pytest.approx(2 / 9, rel=0.02)
    assert found.headline.startswith("`total += loss.item()` waits for the GPU")
    assert any("3 syncs a step" in one for one in found.evidence)
    assert top(READING) == RULE


def test_predictions_are_fetched_together() -> None:
    predicts = READING.but(backward=0.0, optimizer=0.0, setup={"optimizers": ()})
    (cure,) = sick(RULE, predicts).prescriptions
    assert "loss" not in cure.text + cure.code and "torch.cat(kept).cpu()" in cure.code


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        READING.but(gpu_gap=0.05, gpu_work=8.95),  # the wait only shows where the GPU works
        READING.but(gpu_gap=0.2, gpu_work=8.8, caught_up=0.5),  # what it may idle within phases was not measured
        READING.but(wait=2.0, gpu_work=9.0),  # the loader fills the gap
        Loop(),
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_the_hosts_other_work_stays_when_the_wait_goes() -> None:
    # The host's 8 ms without the wait are longer than the GPU's 3.5: of 9 ms a step 8 are left.
    python = READING.but(sync=1.0, other=5.0, gpu_gap=5.5, gpu_work=3.5)
    assert sick(RULE, python).cost_share == pytest.approx(1 / 9, rel=0.01)


def test_where_the_host_limits_the_gpu_it_is_a_bound() -> None:
    norms = READING.but(sync=1.0, other=5.0, gpu_gap=0.2, gpu_work=8.8, caught_up=1.0)
    found = sick(RULE, norms)
    assert found.kind == "at-most" and found.cost_share == pytest.approx(1 / 9, rel=0.02)
    assert "at most 11 %" in found.headline
    assert asked(RULE, norms.but(caught_up=0.0)) is None, "its queue is full: the wait only shows where it works"
    long = READING.but(gpu_gap=0.2, gpu_work=8.8, caught_up=1.0)
    assert sick(RULE, long).cost_share == pytest.approx(3 / 9, rel=0.02), "while the host waits, the GPU works"


def test_where_waits_were_not_counted_nothing_is_said_of_their_number() -> None:
    found = sick(RULE, READING.but(syncs=float("nan"), lines=()))
    assert not any("a step" in one for one in found.evidence) and "`" not in found.headline

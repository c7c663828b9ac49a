"""hidden-sync: a line waits for the GPU that does not look like it, and the GPU idles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import LineCost
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "hidden-sync"
SOURCE = """for x, y in loader:
    x = x[x.amax(1) > 0]
    x = x.to(device)
    loss = net(x)
    loss.backward()
    o.step()
    hard = out[out < 0.5]
    plain = out[indices]
"""


def of(row: int, share: float, phase: str = "other", in_torch: bool = False) -> LineCost:
    return LineCost("<cell>", row, "<module>", SOURCE.splitlines()[row - 1].strip(), phase, share, in_torch)


SICK = on_gpu(
    other=6.0,
    forward=1.0,
    backward=1.0,
    optimizer=1.0,
    gpu_gap=2.0,
    gpu_work=7.0,
    workers=4,
    source=SOURCE,
    lines=(of(7, 6 / 9),),
)


def test_sick() -> None:
    found = sick(RULE, SICK)
    assert found.cost_share == pytest.approx(2 / 9, rel=0.02), "what the GPU idles, not what the host waits"
    assert "out[out < 0.5]" in found.headline
    assert any("line 7" in one for one in found.evidence)
    assert found.kind == "lost" and top(SICK) == RULE
    for one in found.prescriptions:
        compile(one.code, RULE, "exec")


def test_a_masks_index_in_the_models_own_forward() -> None:
    inside = LineCost("net.py", 12, "forward", "h = h[mask]", "forward", 6 / 9)
    loop = SICK.but(other=0.0, forward=7.0, lines=(inside,))
    assert sick(RULE, loop).cost_share == pytest.approx(2 / 9, rel=0.02)


CALL = LineCost("<cell>", 4, "<module>", "loss = net(x[mask])", "forward", 6 / 9, True)


@pytest.mark.parametrize(
    "loop",
    [
        on_gpu(),
        SICK.but(lines=(of(8, 6 / 9),)),  # indices wait for nothing
        Loop(other=6.0, source=SOURCE, lines=(of(7, 0.5),)),  # on a CPU nothing is asynchronous
        SICK.but(gpu_gap=0.05, gpu_work=8.95),  # behind a full queue a wait only shows where the GPU works
        SICK.but(lines=(replace(of(2, 6 / 9), before_forward=True),)),  # cut out on the CPU, before the copy
        SICK.but(other=0.15, gpu_gap=1.0, gpu_work=2.15, lines=(of(7, 0.048),)),  # 0.15 ms: it only launches
        SICK.but(other=0.0, forward=7.0, source="", lines=(CALL,)),  # torch's own modules under the line launch
    ],
)
def test_well(loop: Loop) -> None:
    assert asked(RULE, loop) is None


def test_waits_that_were_heard_are_host_syncs() -> None:
    both = SICK.but(other=0.5, sync=5.5, syncs=1.0, lines=(of(7, 0.5 / 9),))
    assert named(both) == ["host-sync"]


def test_of_a_few_looks_nothing_is_told() -> None:
    recording = SICK.recording()
    assert RULE not in [one.rule for one in diagnose(replace(recording, looks=4)).findings]
    assert RULE in [one.rule for one in diagnose(replace(recording, looks=100)).findings]

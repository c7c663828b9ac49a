"""augmentation-in-loop: the training thread prepares each batch before the model gets it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import LineCost
from tests.support.found import asked, named, sick, top
from tests.support.recordings import Loop, on_gpu

RULE = "augmentation-in-loop"
SOURCE = """for x, y in loader:
    x = torch.stack([augment(one) for one in x])
    x = x.to(device)
    x = jitter(x)
    loss = net(x)
    loss.backward()
    o.step()
    log(loss)
"""


def of(row: int, share: float, phase: str = "other", source: str = SOURCE) -> LineCost:
    return LineCost("<cell>", row, "<module>", source.splitlines()[row - 1].strip(), phase, share)


FORWARD = of(5, 0.2, "forward")
SICK = Loop(other=10.0, source=SOURCE, lines=(of(2, 0.5), FORWARD), consumer_cpu=20.0)
WHOLE = SOURCE.replace("torch.stack([augment(one) for one in x])", "augment(x)")
AT_ONCE = SICK.but(source=WHOLE, lines=(of(2, 0.5, source=WHOLE), FORWARD))


def test_sick() -> None:
    found = sick(RULE, SICK)
    assert found.cost_share == pytest.approx(0.5)
    together, workers = found.prescriptions
    assert together.text.startswith("Prepare the whole batch in one call")
    assert together.predicted_speedup == pytest.approx(1.0 / (1.0 - 0.45), rel=0.05)
    assert "1 worker " in workers.text and "__getitem__" in workers.code
    assert 1.5 < (workers.predicted_speedup or 0.0) <= 2.0
    assert named(SICK) == [RULE], "its lines are not billed again as Python"
    assert any("augment(one)" in one for one in found.evidence)


def test_a_whole_batch_goes_to_workers_where_cores_are_free() -> None:
    (workers,) = sick(RULE, AT_ONCE).prescriptions
    assert "collate_fn=collate" in workers.code


def test_every_code_is_python() -> None:
    for loop in (SICK, AT_ONCE, SICK.but(loader={"batch_size": None})):
        for one in sick(RULE, loop).prescriptions:
            compile(one.code, RULE, "exec")


def test_on_a_gpu_tensor_operations_belong_there() -> None:
    """Workers, too, leave the training thread free: 10 of 20 ms."""
    lines = {"source": WHOLE, "lines": AT_ONCE.lines}
    found = sick(RULE, on_gpu(other=10.0, gpu_gap=10.0, workers=4, fetch=2.0, **lines))
    first, *rest = found.prescriptions
    assert first.text.startswith("Do tensor operations on the GPU") and "non_blocking" in first.code
    assert first.predicted_speedup == pytest.approx(2.0, rel=0.01) and len(rest) == 1
    assert sick(RULE, on_gpu(other=10.0, gpu_gap=10.0, workers=4, fetch=2.0, **lines)).cost_share <= 0.5


def test_well() -> None:
    assert asked(RULE, Loop()) is None
    assert asked(RULE, SICK.but(lines=(of(8, 0.5), FORWARD))) is None, "it logs"
    assert asked(RULE, SICK.but(other=0.5, lines=(of(2, 0.04), FORWARD))) is None
    assert asked(RULE, SICK.but(has_loader=False)) is None, "slow-generator's"


def test_whole_batches_on_full_cores_gain_nothing_by_moving() -> None:
    """As measured: 0.72 to 0.93 times the speed. Two cores, both of them busy all the time."""
    full = AT_ONCE.but(cores=2.0, consumer_cpu=38.0)
    assert asked(RULE, full) is None
    apart = sick(RULE, SICK.but(cores=2.0, consumer_cpu=38.0))
    (cure,) = apart.prescriptions
    assert "the whole batch in one call" in cure.text


def test_what_runs_on_the_gpu_already_is_left_there() -> None:
    """`jitter` comes after the copy: the host only launches it."""
    loop = on_gpu(other=10.0, gpu_gap=10.0, source=SOURCE, lines=(of(4, 0.5), FORWARD))
    assert asked(RULE, loop) is None
    cpu = SICK.but(lines=(of(4, 0.5), FORWARD))
    assert asked(RULE, cpu) is not None, "a copy to the CPU moves nothing"


def test_behind_a_full_queue_it_costs_nothing() -> None:
    assert asked(RULE, on_gpu(other=10.0, gpu_gap=0.0, source=SOURCE, lines=SICK.lines)) is None


def test_where_other_python_takes_more_that_is_named() -> None:
    mixed = SICK.but(lines=(of(2, 0.2), of(8, 0.3), FORWARD))
    assert asked(RULE, mixed) is None and top(mixed) == "slow-python"


def test_of_a_few_looks_nothing_is_told() -> None:
    recording = SICK.but(lines=(of(2, 0.5), FORWARD)).recording()
    assert RULE not in [one.rule for one in diagnose(replace(recording, looks=4)).findings]
    assert RULE in [one.rule for one in diagnose(replace(recording, looks=40)).findings]


def test_it_is_silent_where_the_gpus_own_clock_was_not_read() -> None:
    recording = on_gpu(other=10.0, source=SOURCE, lines=SICK.lines).recording()
    unread = {name: np.full(len(recording.steps), np.nan) for name in ("gpu_s", "gpu_gap_s")}
    diagnosis = diagnose(replace(recording, steps=replace(recording.steps, **unread)))
    assert RULE in {one.rule for one in diagnosis.silent}

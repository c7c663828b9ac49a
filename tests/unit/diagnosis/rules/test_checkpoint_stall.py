"""checkpoint-stall: torch.save in the loop."""

from __future__ import annotations

import types
from dataclasses import replace

import pytest
from gpu_doctor.diagnosis.rules.host.checkpoint_stall import EVERY

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost, Recording
from tests.support.found import asked, named, rule
from tests.support.recordings import Loop, calling, line, on_gpu

RULE = "checkpoint-stall"
SAVING = Loop(other=5.0)


def test_sick() -> None:
    recording = calling(SAVING, "checkpoint", 0.3, 10, 4e6)
    finding = asked(RULE, recording)
    assert finding is not None and finding.cost_share == pytest.approx(0.3)
    assert any("10 times in 100 steps" in one and "391 KiB" in one for one in finding.evidence)
    assert any("line 9" in one for one in finding.evidence)
    cure = finding.prescriptions[0]
    assert cure.predicted_low and cure.predicted_speedup and cure.predicted_high
    assert cure.predicted_low < 1 / 0.7 < cure.predicted_speedup < cure.predicted_high, "the rest warms"
    assert cure.predicted_speedup == pytest.approx(1 / 0.7, rel=0.05), "but one step in ten alone was cold"
    for one in finding.prescriptions:
        compile(one.code, RULE, "exec")
    assert named(recording)[0] == RULE


def test_what_is_pasted_runs() -> None:
    saved: list[str] = []
    torch = types.SimpleNamespace(save=lambda state, path: saved.append(path))
    exec(EVERY, {"torch": torch, "state": {}, "path": "x.pt"})
    assert not saved, "the clock has just been started"


def test_the_same_seconds_are_not_billed_to_python_as_well() -> None:
    assert "slow-python" not in named(calling(SAVING, "checkpoint", 5 / 15, 10))
    assert "slow-python" in named(calling(Loop(other=10.0), "checkpoint", 0.1, 10))


def test_a_gpu_stands_still_too() -> None:
    assert asked(RULE, calling(on_gpu(), "checkpoint", 0.1, 2)) is not None


def test_well() -> None:
    assert asked(RULE, calling(Loop(), "checkpoint", 0.03, 2)) is None
    assert asked(RULE, Loop().recording()) is None


def test_other_chores_are_no_checkpoints() -> None:
    assert asked(RULE, calling(SAVING, "collect-garbage", 0.3, 10)) is None


def test_one_checkpoint_does_not_tell_how_often_they_come() -> None:
    assert asked(RULE, calling(SAVING, "checkpoint", 0.3, 1)) is None


SYNCED = replace(line("os.fsync(f.fileno())", 0.2), line=11, saves=True)
WROTE = replace(line("np.save(path, weights)", 0.33), saves=True)


def test_the_wait_for_the_disk_is_part_of_a_checkpoint() -> None:
    loop = SAVING.but(lines=(SYNCED,))
    finding = asked(RULE, calling(loop, "checkpoint", 2 / 15, 10))
    assert finding is not None and finding.cost_share == pytest.approx(2 / 15 + 0.2)
    assert any("10 times" in one for one in finding.evidence) and any("fsync" in one for one in finding.evidence)
    assert "slow-python" not in named(calling(loop, "checkpoint", 2 / 15, 10))


def written(*lines: LineCost) -> Recording:
    return replace(SAVING.but(lines=lines).recording(), chores=())


def test_a_file_written_without_torch_is_a_checkpoint_and_no_python() -> None:
    finding = asked(RULE, written(WROTE))
    assert finding is not None and finding.cost_share == pytest.approx(1 / 3, rel=0.02)
    assert "np.save" in finding.evidence[0] and "data to files" in finding.headline
    assert named(written(WROTE))[0] == RULE
    assert "slow-python" not in named(written(WROTE))


def test_a_log_beside_it_stays_python() -> None:
    log = line("log.write(str(loss))", 0.2)
    recording = written(log, replace(WROTE, share=0.13))
    assert {RULE, "slow-python"} <= set(named(recording))
    assert asked(RULE, written(log)) is None


def test_a_file_written_in_one_step_alone_does_not_tell_how_often() -> None:
    vitals = measure(written(WROTE))
    assert rule(RULE).finds(replace(vitals, other_once_share=0.33)) is None

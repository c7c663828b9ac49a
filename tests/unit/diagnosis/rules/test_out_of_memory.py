"""out-of-memory: explained after one step, after none, and after a real loop that asks for too much."""

from __future__ import annotations

import gpu_doctor.trials.run as trial
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Recording
from tests.support.found import sick
from tests.support.recordings import on_gpu, with_outcome
from tests.support.rule_loops.memory import MESSAGE, PREDICTING, ended

RULE = "out-of-memory"


def test_a_run_without_a_step_is_explained_too() -> None:
    recording = on_gpu(steps=1).recording()
    empty = with_outcome(Recording(steps=recording.steps.rows(0, 0), setup=recording.setup), RULE, MESSAGE)
    diagnosis = diagnose(empty)
    assert [one.rule for one in diagnosis.findings] == [RULE] and diagnosis.bottleneck == "unknown"


def test_what_ended_in_its_first_step_may_have_been_about_to_train() -> None:
    (cure,) = sick(RULE, ended(PREDICTING.but(steps=1))).prescriptions
    assert "32" in cure.text and "optimizer step every 2" in cure.changes
    assert sick(RULE, ended(PREDICTING)).prescriptions[-1].changes != cure.changes


def test_a_real_loop_that_asks_for_more_than_there_is() -> None:
    code = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(9):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if i == 2:
        torch.empty(1 << 60)
"""
    namespace: dict[str, object] = {}
    result = trial.run(lambda: exec(code, namespace), Recorder(source=code), namespace)
    assert result.error is not None
    diagnosis = diagnose(result.recording)
    assert [one.rule for one in diagnosis.findings] == [RULE]
    assert diagnosis.verdict == diagnosis.findings[0].headline and "3 steps" in diagnosis.verdict
    assert "tried to allocate" in diagnosis.findings[0].evidence[0]

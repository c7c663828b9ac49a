"""out-of-memory: explained from torch's own message, whatever the number of steps."""

from __future__ import annotations

import pytest

import gpu_doctor.trials.run as trial
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.diagnosis import diagnose
from tests.support.found import asked, surely
from tests.support.recordings import Loop, on_gpu, with_outcome

RULE = "out-of-memory"
SAID = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 0 has a total capacity of 79.00 GiB "
    "of which 3.00 GiB is free. Including non-PyTorch memory, this process has 75.50 GiB memory in use. "
    "Of the allocated memory "
    "74.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
MADE = {"parameter_bytes": 1 << 30, "optimizers": ("Adam",)}


@pytest.mark.parametrize("steps", [1, 3, 100])
def test_sick(steps: int) -> None:
    recording = with_outcome(on_gpu(steps=steps, batch=64, setup=MADE).recording(), "out-of-memory", SAID)
    found = surely(RULE, recording)
    assert "trying to allocate 8.0 GiB more" in found.headline and found.risk
    assert "3.0 GiB free on the card" in found.evidence[0]
    cure = next(one for one in found.prescriptions if one.settings)
    assert cure.settings == {"batch_size": 32} and cure.predicted_speedup is None
    assert diagnose(recording).verdict == found.headline


def test_a_run_without_a_step_is_explained_too() -> None:
    recording = with_outcome(on_gpu(steps=1).recording(), "out-of-memory", SAID)
    empty = with_outcome(
        type(recording)(steps=recording.steps.rows(0, 0), setup=recording.setup), "out-of-memory", SAID
    )
    diagnosis = diagnose(empty)
    assert [one.rule for one in diagnosis.findings] == [RULE] and diagnosis.bottleneck == "unknown"


PREDICTS = on_gpu(steps=30, batch=64, backward=0.0, optimizer=0.0, setup={"parameter_bytes": 8 << 30, "optimizers": ()})


def test_predictions_keep_no_gradients_before_they_take_a_smaller_batch() -> None:
    found = surely(RULE, with_outcome(PREDICTS.recording(), "out-of-memory", SAID))
    graph, smaller = found.prescriptions
    assert "inference_mode" in graph.code and smaller.text == "Run with a batch of 32"
    assert smaller.changes == "The same results but for rounding."
    one = surely(RULE, with_outcome(PREDICTS.but(batch=1).recording(), "out-of-memory", SAID))
    assert one.prescriptions[-1].text == "Use half precision"
    huge = PREDICTS.but(setup={"parameter_bytes": 80 << 30, "optimizers": ()})
    assert "train" not in surely(RULE, with_outcome(huge.recording(), "out-of-memory", SAID)).prescriptions[-1].text


def test_what_ended_in_its_first_step_may_have_been_about_to_train() -> None:
    found = surely(RULE, with_outcome(PREDICTS.but(steps=1).recording(), "out-of-memory", SAID))
    (cure,) = found.prescriptions
    assert cure.text == "Run with a batch of 32" and cure.changes.startswith("If it trains, an optimizer step every 2")
    one = surely(RULE, with_outcome(PREDICTS.but(steps=1, batch=1).recording(), "out-of-memory", SAID))
    assert "if it trains" in one.prescriptions[-1].text


def test_pieces_and_neighbours_are_told_apart() -> None:
    pieces = SAID.replace("1.00 GiB is reserved", "20.00 GiB is reserved")
    assert (
        "expandable_segments"
        in surely(RULE, with_outcome(on_gpu().recording(), "out-of-memory", pieces)).prescriptions[0].code
    )
    shared = SAID.replace("Including", "Process 4242 has 40.00 GiB memory in use. Including")
    found = surely(RULE, with_outcome(on_gpu().recording(), "out-of-memory", shared))
    assert "other processes" in found.prescriptions[0].text
    assert not any("expandable" in one.code for one in found.prescriptions)


def test_in_a_container_the_process_does_not_take_itself_for_another() -> None:
    said = SAID.replace("Including non-PyTorch memory, this process", "Process 77")
    found = surely(RULE, with_outcome(on_gpu().recording(), "out-of-memory", said))
    assert not any("other processes" in one.text for one in found.prescriptions)


def test_a_model_too_large_for_any_batch() -> None:
    huge = on_gpu(setup={"parameter_bytes": 25 << 30, "optimizers": ("AdamW",)})
    found = surely(RULE, with_outcome(huge.recording(), "out-of-memory", SAID))
    assert not any(one.settings for one in found.prescriptions) and "Shard" in found.prescriptions[-1].text


def test_the_hosts_memory() -> None:
    reason = "RuntimeError: [enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"
    found = surely(RULE, with_outcome(Loop(wait=1.0, workers=4).recording(), "out-of-memory", reason))
    assert "The machine ran out of memory" in found.headline and found.prescriptions[0].settings == {"num_workers": 2}
    refused = Loop(wait=1.0, workers=2, loader={"refusals": {"num_workers": "The loader keeps its iterator."}})
    cure = surely(RULE, with_outcome(refused.recording(), "out-of-memory", reason)).prescriptions[0]
    assert not cure.settings and cure.text.startswith("Use 1 loader worker (not by a trial")


def test_memory_that_the_host_refused_comes_before_what_made_the_run_slow() -> None:
    """torch says it as a plain RuntimeError, so the run counts as failed."""
    reason = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12"
    diagnosis = diagnose(with_outcome(Loop(other=30.0).recording(), "failed", reason))
    assert [one.rule for one in diagnosis.findings] == [RULE, "slow-python"]
    assert diagnosis.verdict == diagnosis.findings[0].headline


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
    assert diagnosis.verdict.startswith("The machine ran out of memory") and "3 steps" in diagnosis.verdict
    assert "tried to allocate" in diagnosis.findings[0].evidence[0]


def test_an_unknown_message_invents_nothing() -> None:
    found = surely(RULE, with_outcome(on_gpu().recording(), "out-of-memory", "RuntimeError: CUDA error: out of memory"))
    assert "GiB" not in found.headline


def test_well() -> None:
    assert asked(RULE, on_gpu(peak_share=0.99)) is None


def test_another_failure_is_not_explained_by_memory() -> None:
    failed = with_outcome(on_gpu().recording(), "failed", "ValueError: out of cheese")
    assert asked(RULE, failed) is None and not diagnose(failed).findings

"""near-out-of-memory: what the run needs at its peak leaves less than a tenth of the card."""

from __future__ import annotations

from gpu_doctor.recording.setup import EvaluationFacts
from tests.support.found import asked, surely
from tests.support.recordings import on_gpu, read

RULE = "near-out-of-memory"
FULL = on_gpu(peak_share=0.95)


def test_sick() -> None:
    found = surely(RULE, FULL)
    assert found.kind == "hint" and found.risk and "95 %" in found.headline
    assert found.prescriptions[0].code


PREDICTS = FULL.but(backward=0.0, optimizer=0.0, setup={"optimizers": ()})


def test_predictions_take_a_smaller_batch_and_keep_no_graph() -> None:
    graph, smaller = surely(RULE, PREDICTS).prescriptions
    assert "inference_mode" in graph.code and "batch_size=16" in smaller.code
    (only,) = surely(RULE, PREDICTS.but(source="with torch.no_grad():\n    model(x)", has_loader=False)).prescriptions
    assert "split" in only.code
    looked = PREDICTS.but(setup={"optimizers": (), "evaluation": EvaluationFacts(9, 9)}, source="torch.no_grad()")
    assert "inference_mode" in surely(RULE, looked).prescriptions[0].code, "some forwards recorded gradients"
    for one in (graph, smaller, only):
        compile(one.code.replace("...", "dataset"), RULE, "exec")


def test_what_cuda_and_others_hold_counts() -> None:
    recording = read(on_gpu(peak_share=0.8).recording(), torch_reserved_bytes=66e9, gpu_memory_used_bytes=77e9)
    assert "94 %" in surely(RULE, recording).headline


def test_well() -> None:
    assert asked(RULE, on_gpu()) is None


def test_a_cache_that_fills_the_card_is_not_needed() -> None:
    recording = read(on_gpu(peak_share=0.5).recording(), torch_reserved_bytes=78e9, gpu_memory_used_bytes=79e9)
    assert asked(RULE, recording) is None

"""cpu-only-torch: a build without CUDA beside an NVIDIA card."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, named, surely
from tests.support.recordings import Loop, on_gpu, read

RULE = "cpu-only-torch"
CPU: dict[str, Any] = {"torch_version": "2.13.0+cpu", "cuda_version": ""}
CARD: dict[str, Any] = {"gpu_memory_total_bytes": 141e9, "driver_cuda": 12040}


def beside_a_card(loop: Loop) -> Any:
    return read(loop.recording(), 0, **CARD)


def test_sick() -> None:
    found = surely(RULE, beside_a_card(Loop(wait=10.0, setup=CPU)))
    assert found.kind == "at-most" and found.first
    assert found.cost_share == pytest.approx(0.5, abs=0.02), "what would move to the GPU"
    assert "CUDA 12.4 or lower" in found.prescriptions[0].text


def test_well() -> None:
    assert asked(RULE, Loop(setup=CPU)) is None, "there is no card"
    assert RULE not in named(on_gpu(setup={"torch_version": "2.13.0+cu130", "cuda_version": "13.0"}))


@pytest.mark.parametrize(
    "setup", [{**CPU, "torch_version": "2.13.0+rocm7"}, {**CPU, "device": "mps"}, {**CPU, "cuda_version": "13.0"}]
)
def test_other_builds(setup: dict[str, Any]) -> None:
    assert asked(RULE, beside_a_card(Loop(setup=setup))) is None


def test_a_model_so_small_that_a_gpu_would_not_help() -> None:
    assert asked(RULE, beside_a_card(Loop(forward=0.2, backward=0.2, optimizer=0.1, setup=CPU))) is None

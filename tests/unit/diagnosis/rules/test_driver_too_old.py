"""driver-too-old: the driver serves an earlier CUDA than torch was built for, and torch finds no device."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.found import asked, surely
from tests.support.recordings import Loop, on_gpu, read

RULE = "driver-too-old"
BUILD: dict[str, Any] = {"torch_version": "2.13.0+cu130", "cuda_version": "13.0", "driver_version": "470.82.01"}


def card(loop: Loop, serves: float = 11040) -> Any:
    return read(loop.recording(), 0, gpu_memory_total_bytes=16e9, driver_cuda=serves)


def test_sick() -> None:
    found = surely(RULE, card(Loop(setup=BUILD)))
    assert found.kind == "at-most" and found.first and found.cost_share == pytest.approx(1.0, abs=0.01)
    assert "470.82.01 supports CUDA 11.4" in found.evidence[0] and "CUDA 11" in found.prescriptions[1].text


def test_well() -> None:
    assert asked(RULE, card(Loop(setup=BUILD), serves=13000)) is None
    assert asked(RULE, Loop(setup=BUILD)) is None


def test_an_older_minor_version_serves() -> None:
    assert asked(RULE, card(Loop(setup={**BUILD, "cuda_version": "12.8"}), serves=12020)) is None


def test_forward_compatibility_makes_an_old_driver_work() -> None:
    assert asked(RULE, card(on_gpu(setup=BUILD))) is None

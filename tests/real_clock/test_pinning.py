"""Pinned memory on a machine without a GPU is noted on the first run."""

from __future__ import annotations

import pytest
import torch

import gpu_doctor
from tests.support.bad_input_parts import LOOP, namespace


@pytest.mark.skipif(torch.cuda.is_available(), reason="pins on a GPU")
def test_pinning_without_a_gpu_is_noted_on_the_first_run() -> None:
    recording = gpu_doctor.case(LOOP, namespace()).run({"pin_memory": True})
    assert any("pin_memory=True changed nothing" in note for note in recording.notes)

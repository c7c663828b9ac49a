"""What of `tests/unit/recording/test_recording_form.py` runs real loops or takes more than a second."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from gpu_doctor.recording import Recording
from gpu_doctor.recording_file import load
from gpu_doctor.recording_form import check
from gpu_doctor.steps import Steps


def test_a_million_steps_are_read_as_soon(tmp_path: Path) -> None:
    path = Recording(steps=Steps.of(wall_s=np.full(1_000_000, 0.1))).save(tmp_path / "run.npz")
    begin = time.perf_counter()
    recording = load(path)
    whole_s, begin = time.perf_counter() - begin, time.perf_counter()
    check(recording)
    assert time.perf_counter() - begin < 0.2 * whole_s

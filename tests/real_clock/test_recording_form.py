"""Checking the form of a long recording takes little beside reading it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import numpy as np

from gpu_doctor.recording import Recording, Steps, form, load

MOST_OF_READING: Final = 0.2
"""0.003 on an idle core; a line of Python for each step, 0.12 s a column, would make it a half for one column alone."""


def test_a_million_steps_are_read_as_soon(tmp_path: Path) -> None:
    path = Recording(steps=Steps.of(wall_s=np.full(1_000_000, 0.1))).save(tmp_path / "run.npz")
    begin = time.thread_time()  # of this thread only
    recording = load(path)
    whole_s, begin = time.thread_time() - begin, time.thread_time()
    form.made(Recording, recording)
    assert time.thread_time() - begin < MOST_OF_READING * whole_s

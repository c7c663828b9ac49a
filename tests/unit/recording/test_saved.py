"""Recordings that version 0.1.0 has saved still load, and are judged as they were then."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import gpu_doctor
from gpu_doctor.recording import PHASES
from tests.support.repository import ROOT, SAVED


@pytest.mark.parametrize(
    ("name", "outcome", "steps", "bottleneck", "first", "lines"),
    [
        ("starved-on-a-cpu", "completed", 40, "input", "loader-without-workers", True),
        ("failed-with-workers", "failed", 40, "input", "too-few-workers", True),
        ("on-a-gpu-as-simulated", "completed", 100, "unknown", None, False),
    ],
)
def test_a_recording_of_the_first_version_is_read_as_it_was(
    name: str, outcome: str, steps: int, bottleneck: str, first: str | None, lines: bool
) -> None:
    recording = gpu_doctor.load(SAVED / f"{name}.npz")
    assert (recording.outcome, len(recording.steps)) == (outcome, steps)
    phases = sum(np.nan_to_num(getattr(recording.steps, f"{one}_s")) for one in PHASES) + recording.steps.other_s
    np.testing.assert_allclose(phases, recording.steps.wall_s, atol=1e-9)
    assert bool(recording.lines) == lines
    diagnosis = gpu_doctor.diagnose(recording)
    assert diagnosis.bottleneck == bottleneck
    assert (diagnosis.findings[0].rule if diagnosis.findings else None) == first
    assert "gpu-doctor-static" in diagnosis._repr_html_()


def test_it_is_saved_again_as_it_is(tmp_path: Path) -> None:
    for path in SAVED.glob("*.npz"):
        again = gpu_doctor.load(gpu_doctor.load(path).save(tmp_path / path.name))
        assert repr(again.setup) == repr(gpu_doctor.load(path).setup)  # NaN is not equal to itself
        np.testing.assert_array_equal(again.steps.wall_s, gpu_doctor.load(path).steps.wall_s)


def test_the_recording_to_replay_is_small_and_names_nobodys_machine() -> None:
    path = ROOT / "notebooks" / "recordings" / "images-on-a-cpu.npz"
    recording = gpu_doctor.load(path)
    assert path.stat().st_size < 100_000
    assert recording.setup.host == "a virtual machine with two cores"
    places = {one.file for one in recording.lines}
    assert not [one for one in places if os.sep in one], "files of the machine that it was made on"
    assert gpu_doctor.diagnose(recording).findings[0].rule == "loader-without-workers"

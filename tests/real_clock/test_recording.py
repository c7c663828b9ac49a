"""A recording with a flipped byte anywhere is read or refused, and never crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_doctor.recording import RecordingError, load
from tests.support.recording_parts import full

pytestmark = pytest.mark.core


def test_a_flipped_byte_anywhere_is_survived(tmp_path: Path) -> None:
    whole = full().save(tmp_path / "run.npz").read_bytes()
    broken = tmp_path / "broken.npz"
    for at in range(0, len(whole), 37):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            load(broken)
        except RecordingError:
            continue

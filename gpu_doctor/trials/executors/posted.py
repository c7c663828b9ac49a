"""Recordings on their way between machines: the bytes of the file that `Recording.save` writes, never a pickle."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpu_doctor.recording import Recording, load


def as_bytes(recording: Recording) -> bytes:
    """The recording's file, as bytes."""
    with tempfile.TemporaryDirectory(prefix="gpu_doctor-") as folder:
        return recording.save(Path(folder) / "run.npz").read_bytes()


def of_bytes(file: bytes) -> Recording:
    """The recording of such bytes.

    Raises:
        RecordingError: if they are not whole, or of a newer gpu_doctor.
    """
    with tempfile.TemporaryDirectory(prefix="gpu_doctor-") as folder:
        path = Path(folder) / "run.npz"
        path.write_bytes(file)
        return load(path)

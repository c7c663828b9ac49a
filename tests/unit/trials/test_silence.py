"""What a trial's code writes is swallowed, however it writes."""

from __future__ import annotations

import sys

import pytest

from gpu_doctor.trials.rounds import silence


def test_bytes_through_the_buffer_are_swallowed_as_text_is(capsys: pytest.CaptureFixture[str]) -> None:
    with silence():
        print("epoch 1", "loss \N{GREEK SMALL LETTER ALPHA}")
        sys.stdout.buffer.write(b"raw bytes\n")
        sys.stderr.buffer.write(b"\xff")
        sys.stdout.flush()
    assert capsys.readouterr() == ("", "")

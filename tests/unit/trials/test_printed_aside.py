"""What a trial's code prints past the names of the streams is shown nowhere, and afterwards all is as before."""

from __future__ import annotations

import functools
import io
import logging
import sys

import pytest

import gpu_doctor
from gpu_doctor.capture.patching import active
from gpu_doctor.trials.printed_aside import mute_streams
from gpu_doctor.trials.rounds import silence

CELL = "for _ in range(3):\n    log.info('a step'); show('a step'); err.write('a step'); out.writelines(['a step'])"


def test_what_keeps_a_stream_from_before_shows_nothing_in_a_trial(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("a trial's")
    log.addHandler(logging.StreamHandler())
    log.addHandler(logging.StreamHandler(sys.stdout))
    show = functools.partial(print, file=sys.stderr)
    case = gpu_doctor.case(CELL, {"log": log, "show": show, "err": sys.stderr, "out": sys.stdout})
    case.trial({"threads": 1}, steps=2, seconds=1.0, pairs=1)
    assert capsys.readouterr() == ("", "")
    case.run()
    out, err = capsys.readouterr()
    assert out.count("a step") == 6 and err.count("a step") == 9
    assert active() == ()


def test_other_streams_are_left_alone_and_none_is_changed_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, other = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", None)
    with mute_streams():
        assert (stream.write("abc"), other.write("abc")) == (3, 3)
    stream.write("later")
    assert (stream.getvalue(), other.getvalue()) == ("later", "abc")
    assert "write" not in vars(stream)


def test_a_stream_that_takes_no_attribute_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        __slots__ = ()

        def write(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(sys, "stderr", Fixed())
    with mute_streams():
        assert sys.stderr.write("abc") == 3
    assert active() == ()


def test_bytes_through_the_buffer_are_swallowed_as_text_is(capsys: pytest.CaptureFixture[str]) -> None:
    with silence():
        print("epoch 1", "loss \N{GREEK SMALL LETTER ALPHA}")
        sys.stdout.buffer.write(b"raw bytes\n")
        sys.stderr.buffer.write(b"\xff")
        sys.stdout.flush()
    assert capsys.readouterr() == ("", "")

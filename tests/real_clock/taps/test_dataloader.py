"""A loader that is built anew each epoch counts as one loader, and two loaders that look alike count as two."""

from __future__ import annotations

import gc

import pytest

from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from tests.support.one_tap import batches, on

pytestmark = pytest.mark.core


def test_a_loader_built_anew_is_one_loader_and_two_alike_are_two() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in range(3):
            list(batches(20))
            gc.collect()
        one, other = batches(16), batches(16)
        list(zip(one, other, strict=True))
    assert len(recorder.loaders) == 3

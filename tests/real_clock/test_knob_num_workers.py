"""Asking for the form of a knob does not import torch, looked at in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gpu_doctor.capture import patching

pytestmark = pytest.mark.core


@pytest.fixture(autouse=True)
def _nothing_left() -> Any:
    yield
    assert patching.active() == ()


def test_the_form_of_a_knob_brings_in_no_torch() -> None:
    code = (
        "import sys, gpu_doctor.trials.knobs.knob; assert 'torch' not in sys.modules; "
        "assert len(gpu_doctor.trials.knobs.KNOBS) >= 4"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

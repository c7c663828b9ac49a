"""Tests of this folder need an NVIDIA GPU; elsewhere they are skipped. `make gpu` runs some."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")

"""memory-growth: what is to be written as it comes can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_doctor.diagnosis.rules.memory.memory_growth import WRITTEN


def test_what_is_to_be_written_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.arange(12.0).reshape(4, 3)
    names: dict[str, Any] = {"np": np, "dataset": rows, "width": 3, "outputs": rows, "done": 0}
    monkeypatch.chdir(tmp_path)
    exec(WRITTEN.code, names)
    assert np.load("outputs.npy").tolist() == rows.tolist() and names["done"] == 4

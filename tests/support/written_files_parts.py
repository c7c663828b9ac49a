"""What the tests of written files share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn


def space() -> dict[str, Any]:
    model = nn.Linear(3, 2)
    return {"torch": torch, "model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.txt").write_text("old")
    (tmp_path / "runs").mkdir()
    return tmp_path

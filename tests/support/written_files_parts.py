"""What the tests of written files share."""

from __future__ import annotations

import hashlib
import stat
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


def digest(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every path below a folder -> kind, mode, time of change, bytes or target; it knows nothing of the keeper."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        at = path.lstat()
        if path.is_symlink():
            inside: object = str(path.readlink())
        else:
            inside = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = stat.filemode(at.st_mode), at.st_mtime_ns, inside
    return found

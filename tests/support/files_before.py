"""A folder with files of the user's, and all that tells whether it was touched."""

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
    """Every path in a folder, itself too -> mode, time of change, inode, bytes or target."""
    return {
        path: (*seen[path], (folder / path).lstat().st_mtime_ns, (folder / path).lstat().st_ino)
        for seen in (contents(folder),)
        for path in seen
    }


def contents(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every path in a folder, itself too -> mode, bytes or target."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        inside: object = ""
        if stat.S_ISLNK(mode):
            inside = str(path.readlink())
        elif stat.S_ISREG(mode):
            inside = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = stat.filemode(mode), inside
    return found

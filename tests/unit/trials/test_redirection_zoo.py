"""In a side every way to write shows what it shows in a run, and the user's folder stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_doctor.trials.side_effects.redirection import Redirection
from tests.support import file_zoo
from tests.support.files_before import contents, digest

STAMPED = frozenset(("archives", "databases", "guests", "numbers", "torch_"))
"""They write the time of day, or what a library numbers."""


@pytest.mark.parametrize("write", file_zoo.WRITERS, ids=lambda one: one.__name__)
def test_a_writer(write: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for name in ("run", "side"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        file_zoo.prepared(folder)
        before = digest(folder)
        if name == "run":
            write()
            seen.append(contents(folder))
        else:
            with Redirection(vars(file_zoo)) as side:
                write()
                seen.append(contents(folder))
            assert digest(folder) == before and side.notes == [] and not Path(side._root or "").exists()
    if write.__name__ == "temporary":  # names that are drawn
        assert len(seen[0]) == len(seen[1])
        return
    assert {path: mode for path, (mode, _) in seen[0].items()} == {path: mode for path, (mode, _) in seen[1].items()}
    if write.__name__ not in STAMPED:
        assert seen[0] == seen[1]

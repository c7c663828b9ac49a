"""A function that a cell launches in processes of its own: its errors are its own, recorded or not."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import gpu_doctor
from gpu_doctor.trials import remove_scratch_folders
from gpu_doctor.trials.launched_ranks import Ranks, Recorded


def fails(number: int) -> None:
    raise KeyError(number)


def test_an_error_of_a_rank_that_cannot_be_recorded_names_no_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere = Recorded(fails, str(tmp_path / "file"), 1)
    with pytest.raises(KeyError) as raised:
        nowhere(0)
    assert raised.value.__context__ is None
    with gpu_doctor.watch(), pytest.raises(KeyError) as raised:
        Recorded(fails, str(tmp_path), 1)(0)
    assert raised.value.__context__ is None
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file"]


def started(monkeypatch: pytest.MonkeyPatch) -> tuple[Ranks, Any]:
    """The ranks of a run that launches `fails`, and what torch is given to launch."""
    launched: list[Callable[..., Any]] = []
    launching: Any = torch.multiprocessing
    monkeypatch.setattr(launching, "start_processes", lambda fn, *more: launched.append(fn))
    ranks = Ranks()
    with ranks.recorded():
        launching.start_processes(fails, (), 2)
    return ranks, launched[0]


def test_without_a_place_for_recordings_the_ranks_are_launched_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    ranks, launched = started(monkeypatch)
    assert launched is fails and ranks.job() is None


def test_the_folder_goes_with_the_ranks_but_not_with_a_fork_and_not_later_than_the_next_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ranks, launched = started(monkeypatch)
    assert launched.folder and len(list(tmp_path.iterdir())) == 1
    del ranks
    assert not list(tmp_path.iterdir())
    ranks, launched = started(monkeypatch)
    me = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: me + 1)
    del ranks
    assert len(list(tmp_path.iterdir())) == 1
    monkeypatch.setattr(psutil, "pid_exists", lambda pid: False)
    remove_scratch_folders()
    assert not list(tmp_path.iterdir())

"""A function that a cell launches in processes of its own: its errors are its own, recorded or not."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpu_doctor
from gpu_doctor.trials.launched_ranks import Recorded


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

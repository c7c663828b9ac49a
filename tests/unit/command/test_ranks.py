"""The command on jobs of several ranks: where recordings go, and the folder told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_doctor.command import main
from gpu_doctor.command.run_script import Destinations
from tests.support.jobs import coupled, saved
from tests.support.recordings import Loop


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


def test_a_folder_is_told_as_text_data_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved(tmp_path, coupled([Loop(), Loop(wait=20.0)]))
    page = tmp_path / "job.html"
    assert main(["report", str(tmp_path)]) == 0
    assert "rank 1" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--json", "-", "--html", str(page)]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"]["straggler"] == 1
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_without_ranks_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_alone_a_folder_is_one_that_is_there_or_ends_in_a_slash(tmp_path: Path) -> None:
    assert Destinations(save=str(tmp_path)).folder == str(tmp_path)
    assert Destinations(save="new/").folder == "new/"
    assert (
        Destinations(save="new").folder is None
        and Destinations(save="run.npz").folder is None
        and Destinations().folder is None
    )


@pytest.mark.usefixtures("launched")
def test_a_rank_of_several_needs_a_folder_and_writes_nothing_else() -> None:
    assert Destinations(save="new").folder == "new"
    with pytest.raises(ValueError, match="name a folder"):
        _ = Destinations(save="run.npz").folder
    with pytest.raises(ValueError, match="report"):
        Destinations(save="new", json="-").check_ranks()
    Destinations(json="-").check_ranks()

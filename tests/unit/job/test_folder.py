"""What ranks leave in their folder, and how it is read: marks, missing ranks, files of an earlier job, damage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import gpu_doctor
from gpu_doctor.job import Job, Place, load
from gpu_doctor.job.folder import from_environment
from gpu_doctor.recording import RecordingError, here
from gpu_doctor.recording.setup import World
from tests.support.jobs import STARTED_AT, coupled, rank, saved
from tests.support.recordings import Loop, starved

LOOP = Loop(steps=20)


def mark(folder: Path, name: str, number: int | None, *, host: str = "node-2", pid: int = 7) -> None:
    (folder / f"{name}.begun").write_text(
        json.dumps({"rank": number, "host": host, "pid": pid, "started_at": STARTED_AT}), encoding="utf-8"
    )


def job(folder: Path) -> Job:
    found = load(folder)
    assert isinstance(found, Job)
    return found


@pytest.mark.parametrize(
    ("said", "known"),
    [
        ({"RANK": "1", "WORLD_SIZE": "4"}, (1, 4)),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None),
        ({"LOCAL_RANK": "1"}, None),
        ({}, None),
    ],
)
def test_the_launchers_rank(said: dict[str, str], known: tuple[int, int] | None) -> None:
    assert from_environment(said) == known


def test_a_rank_leaves_a_mark_and_then_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    place = Place(tmp_path / "deep" / "job")
    place.begin()
    (left,) = place.folder.iterdir()
    assert left.suffix == ".begun"
    ended = place.end(starved())
    assert [one.name for one in place.folder.iterdir()] == ["rank-00001.npz"] and ended.notes == ()
    assert ended.setup.world is not None and (ended.setup.world.rank, ended.setup.world.world_size) == (1, 2)
    found = job(place.folder)
    assert [(one.number, one.state) for one in found.missing] == [(0, "missing: never began")]


def test_the_process_groups_rank_goes_before_the_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    Place(tmp_path).end(rank(3, 4, LOOP))
    assert [one.name for one in tmp_path.iterdir()] == ["rank-00003.npz"]


def test_a_rank_that_begins_takes_away_what_its_last_run_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, coupled([LOOP, LOOP]))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    Place(tmp_path).begin()
    assert {one.name for one in tmp_path.iterdir()} == {"rank-00000.npz", "rank-00001.begun"}
    (missing,) = job(tmp_path).missing
    assert missing.number == 1 and missing.runs and missing.host == here()


def test_a_killed_rank_began_and_never_ended(tmp_path: Path) -> None:
    saved(tmp_path, coupled([LOOP, LOOP, LOOP])[:2])
    mark(tmp_path, "rank-00002", 2)
    (missing,) = job(tmp_path).missing
    assert missing.number == 2 and missing.began_at == STARTED_AT and not missing.runs
    assert [row["state"] for row in job(tmp_path).rows][-1] == missing.state


def test_without_rank_0_the_table_has_all_columns(tmp_path: Path) -> None:
    saved(tmp_path, coupled([LOOP, LOOP])[1:])
    rows = job(tmp_path).rows
    assert [row["rank"] for row in rows] == ["0", "1"] and "backward" in rows[0] and rows[0].keys() == rows[1].keys()


def test_a_process_that_did_not_know_its_rank_is_the_one_that_is_missing(tmp_path: Path) -> None:
    saved(tmp_path, coupled([LOOP, LOOP])[:1])
    mark(tmp_path, "process-abc", None)
    assert [(one.number, one.began_at) for one in job(tmp_path).missing] == [(1, STARTED_AT)]
    mark(tmp_path, "process-def", None)
    assert [one.number for one in job(tmp_path).missing] == [None, None]


def test_nothing_but_marks_is_a_job_that_is_lost_or_runs(tmp_path: Path) -> None:
    mark(tmp_path, "rank-00000", 0)
    found = job(tmp_path)
    assert found.ranks == () and len(found.missing) == 1 and str(found) and found._repr_html_()


def test_recordings_of_an_earlier_job_are_left_out_and_said(tmp_path: Path) -> None:
    ranks = coupled([LOOP, LOOP])
    world = World(world_size=4, rank=3)
    earlier = replace(ranks[0], started_at=STARTED_AT - 100.0, setup=replace(ranks[0].setup, world=world))
    saved(tmp_path, [*ranks, earlier])
    found = job(tmp_path)
    assert len(found.ranks) == 2 and found.world_size == 2 and not found.missing
    assert "rank-00003.npz" in found.notes[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rank-00001.npz", "no zip"),
        ("rank-x.npz", "no number"),
        ("rank-00001.begun", "[]"),
        ("rank-00001.begun", "{" * 9000),
        ("rank-00001.begun", '{"rank": "inf", "host": 1, "pid": {}, "started_at": 1e999}'),
    ],
)
def test_a_damaged_file_is_refused_by_its_name(name: str, text: str, tmp_path: Path) -> None:
    saved(tmp_path, coupled([LOOP, LOOP])[:1])
    if name == "rank-x.npz":
        (tmp_path / "rank-00000.npz").replace(tmp_path / name)
    else:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(RecordingError, match=name):
        load(tmp_path)


def test_an_empty_folder_says_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="watch"):
        load(tmp_path)


def test_a_place_that_cannot_be_written_is_refused_before_the_block(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    with pytest.raises(NotADirectoryError), gpu_doctor.watch(folder=file):
        raise AssertionError("the block ran")
    with gpu_doctor.watch() as run:
        pass
    assert run.recording is not None


def test_a_recording_that_cannot_be_saved_ends_the_block_as_ever(tmp_path: Path) -> None:
    with gpu_doctor.watch(folder=tmp_path / "job") as run:
        (tmp_path / "job").rename(tmp_path / "gone")
    assert run.recording is not None and "could not be saved" in run.recording.notes[-1]


def test_a_watched_block_alone_is_rank_0_of_1(tmp_path: Path) -> None:
    with gpu_doctor.watch(folder=tmp_path):
        pass
    found = gpu_doctor.load(tmp_path)
    assert [one.number for one in found.ranks] == [0] and not found.missing and not found.remarks


def test_a_program_that_changes_its_folder_leaves_its_recording_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Place("job", (0, 1))
    place.begin()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert not place.end(LOOP.recording()).notes
    assert [one.name for one in (tmp_path / "job").iterdir()] == ["rank-00000.npz"]

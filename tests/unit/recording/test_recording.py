"""Every field of a recording survives a file, and every broken file is refused with a sentence."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_doctor.recording import LoaderSetup, Recording, RecordingError, Setup, Steps, describe, load
from gpu_doctor.recording.npz import SCHEMA
from tests.support.recordings import full, same


def test_every_field_survives_a_file(tmp_path: Path) -> None:
    written = full().save(tmp_path / "run")
    assert written == tmp_path / "run.npz"
    same(load(written), full())


def test_a_minimal_recording_survives_a_file(tmp_path: Path) -> None:
    recording = Recording(steps=Steps.of(wall_s=[1.0, 2.0]))
    same(load(recording.save(tmp_path / "run.npz")), recording)


def test_an_empty_run_survives_a_file(tmp_path: Path) -> None:
    recording = Recording(steps=Steps.of(wall_s=[]))
    same(load(recording.save(tmp_path / "run.npz")), recording)
    assert recording.overhead_share is None


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"no recording at .*nowhere\.npz"):
        load(tmp_path / "nowhere.npz")


def test_an_array_whose_header_is_no_python_is_refused(tmp_path: Path) -> None:
    """numpy then reads it token by token, and raises what its own reader does."""
    saved = full().save(tmp_path / "run.npz")
    with zipfile.ZipFile(saved) as whole, zipfile.ZipFile(tmp_path / "broken.npz", "w") as broken:
        for name in whole.namelist():
            data = whole.read(name)
            broken.writestr(name, data.replace(b")", b" ", 1) if name == "steps.wall_s.npy" else data)
    with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
        load(tmp_path / "broken.npz")


@pytest.mark.parametrize("text", [b"", b"hello", b"PK\x03\x04", json.dumps({"schema": 1}).encode()])
def test_something_else_is_refused(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(text)
    with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
        load(path)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    np.savez(tmp_path / "arrays.npz", header=np.arange(3))
    for name in ("other.npz", "arrays.npz"):
        with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
            load(tmp_path / name)


def test_pickle_is_refused(tmp_path: Path) -> None:
    ran: list[int] = []

    class Bomb:
        def __reduce__(self) -> Any:
            return ran.append, (1,)

    np.savez(tmp_path / "objects.npz", header=np.array([Bomb()], dtype=object), allow_pickle=True)
    (tmp_path / "raw.npz").write_bytes(pickle.dumps(Bomb()))
    ran.clear()
    for name in ("objects.npz", "raw.npz"):
        with pytest.raises(RecordingError):
            load(tmp_path / name)
    assert ran == []


def rewritten(path: Path, **changes: Any) -> Path:
    """The file with other values in its header."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = {**json.loads(bytes(arrays["header"]).decode()), **changes}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(path, **arrays)
    return path


def test_a_save_that_breaks_off_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = full().save(tmp_path / "run.npz")
    path.chmod(0o640)
    before = path.read_bytes()

    def breaks(path: Path, packed: bytes) -> None:
        with path.open("wb") as file:
            file.write(packed[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "write_bytes", breaks)
        with pytest.raises(OSError, match="No space left"):
            full().save(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["run.npz"]
    full().save(path)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_save_that_cannot_be_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing.run\.npz'$"):
        full().save(tmp_path / "missing" / "run.npz")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "run.npz"
    link.symlink_to(tmp_path / "far" / "there.npz")
    full().save(link)
    assert link.is_symlink()
    same(load(tmp_path / "far" / "there.npz"), full())


def test_a_newer_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = rewritten(full().save(tmp_path / "run.npz"), schema=SCHEMA + 1)
    with pytest.raises(RecordingError, match=r"newer .* upgrade jupyter-gpu-doctor"):
        load(path)


def test_unknown_keys_of_the_header_are_passed_over(tmp_path: Path) -> None:
    same(load(rewritten(full().save(tmp_path / "run.npz"), of_tomorrow=[1])), full())


def test_settings_are_told_in_words() -> None:
    assert describe({}) == "as written"
    assert describe({"num_workers": 4, "amp": "bf16"}) == "num_workers=4, amp=bf16"


def test_steps_of_some_columns_are_filled_honestly() -> None:
    steps = Steps.of(wall_s=[1.0, 2.0], forward_s=[0.5, 0.5])
    assert steps.start_s.tolist() == [0, 1]
    assert steps.other_s.tolist() == [0.5, 1.5]
    assert np.isnan(steps.samples).all()
    with pytest.raises(ValueError, match="the same length"):
        Steps.of(wall_s=[1.0], samples=[1.0, 2.0])


def test_a_loader_of_unknown_use_is_the_loops_own_only_where_nothing_trains() -> None:
    passed = LoaderSetup(key="all #0", role="unknown")
    trained = LoaderSetup(key="train #0", role="training")
    evaluated = LoaderSetup(key="test #0", role="evaluation")
    assert Setup(loaders=(passed,)).training_loader is passed
    assert Setup(loaders=(evaluated, passed, trained)).training_loader is trained
    assert Setup(loaders=(passed,), optimizers=("SGD",)).training_loader is None  # it trains from something else
    assert Setup(loaders=(evaluated,)).training_loader is None

"""Every field of a recording survives a file, and every broken file is refused with a sentence."""

from __future__ import annotations

import dataclasses
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpu_doctor import recording_file
from gpu_doctor.facts import Chore, EvaluationFacts, Flops, InputFacts, ModelFacts, OptimizerFacts, Traffic, World
from gpu_doctor.recording import (
    DeviceSetup,
    Fetch,
    LineCost,
    LoaderSetup,
    Losses,
    Metric,
    Recording,
    Series,
    Setup,
    Steps,
    describe,
)
from gpu_doctor.recording_file import SCHEMA, RecordingError, load
from gpu_doctor.steps import STEP_COLUMNS


def full() -> Recording:
    """A recording in which every field differs from its default."""
    columns = {name: np.arange(3.0) + 10 * i for i, name in enumerate(STEP_COLUMNS)}
    columns["gpu_s"] = np.array([np.nan, 1.0, np.nan])
    loader = LoaderSetup(
        key="D[8] #0",
        role="evaluation",
        num_workers=2,
        batch_size=8,
        pin_memory=True,
        prefetch_factor=4,
        persistent_workers=True,
        drop_last=True,
        sampler="RandomSampler",
        dataset="D",
        dataset_kind="iterable",
        dataset_len=8,
        batches=1,
        collate="mine",
        start_method="spawn",
        loader_type="MyLoader",
        refusals={"batch_size": "no"},
    )
    setup = Setup(
        loaders=(loader, LoaderSetup(key="plain")),
        device="cuda:0",
        devices=(DeviceSetup(0, "GPU", "GPU-1", 80 << 30, (9, 0)), DeviceSetup(1, "other")),
        dtype="float32",
        autocast="bfloat16",
        parameters=10,
        parameter_bytes=40,
        models=("Net", "Head"),
        optimizers=("Adam",),
        layers={"Linear": 2},
        usable_cores=1.5,
        os_cores=16,
        physical_cores=8,
        start_method="spawn",
        torch_threads=4,
        torch_version="2.13",
        python_version="3.11",
        cuda_version="13",
        driver_version="600",
        flags={"matmul_precision": "highest", "cudnn_benchmark": False},
        model=ModelFacts({"cuda:0": 40}, {"float32": 40}, 8, 2, 1, ("head Linear(3, 5)",), True, "DataParallel"),
        optimizer_facts=(OptimizerFacts("Adam", 4, 10, False, None, True),),
        inputs=InputFacts(9, 2, (8, 3), "float32", "cuda:0", True, 1),
        evaluation=EvaluationFacts(5, 2, 0.25),
        graph_operations=40,
        operation_s=6.3e-6,
        grad_scaler=True,
        graph_leaves=6,
        world=World(4, 1, 8, 1e9, (0.1, 0.2)),
    )
    return Recording(
        steps=Steps(**columns),
        settings={"num_workers": 2, "amp": "bf16", "pin_memory": True, "x": 0.5},
        setup=setup,
        outcome="failed",
        reason="ValueError: no",
        series=(
            Series(Metric("power_w", "W", "power", "detail", 0), np.array([0.5, 1.0]), np.array([300.0, np.nan])),
            Series(Metric("ram", "bytes", "RAM", "memory"), np.empty(0), np.empty(0)),
        ),
        fetches=(
            Fetch(
                *("D[8] #0", 2, 5, 1.0, 0.5, 0.1, float("nan"), np.array([0.2, 0.3]), 0.1, 3e6, 1e6, 2.0, 3.0, 7, 1),
                *(1.5, 0.2, 2, 0.5, 0.25, 1, 0.125, 0.05),
            ),
        ),
        lines=(LineCost("cell.py", 3, "f", "x < 1 & y", "other", 0.25, True, True),),
        looks=40,
        losses=Losses(np.array([0.0]), np.array([8.0]), np.array([2.3])),
        chores=(Chore("checkpoint", 3, 0.5, 4e6, "cell.py", 9, "f", "torch.save(m, f)"),),
        traffic=Traffic(3, 1e6, 1, 2, 1, 8.0, 1, 5e5),
        flops=Flops(3e12, 1e11, 3),
        written=("runs/x.pt",),
        notes=("one", "zwei äöü"),
        name="mine",
        source="for x in loader:\n    pass\n",
        started_at=1.5e9,
        duration_s=12.5,
        overhead_s=0.01,
        peak_bytes=1e9,
    )


def same(one: Any, other: Any) -> None:
    """Compares nested frozen facts, arrays by their values (NaN equals NaN)."""
    if isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    elif dataclasses.is_dataclass(one):
        assert type(one) is type(other)
        for item in dataclasses.fields(one):
            same(getattr(one, item.name), getattr(other, item.name))
    elif isinstance(one, tuple):
        assert isinstance(other, tuple)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, float) and one != one:
        assert other != other
    else:
        assert type(one) is type(other)
        assert one == other


def test_the_full_recording_sets_every_field() -> None:
    whole, blank = full(), Recording(steps=Steps.of(wall_s=[1.0]))
    for kind, one, plain in (
        (Recording, whole, blank),
        (Setup, whole.setup, Setup()),
        (LoaderSetup, whole.setup.loaders[0], LoaderSetup("")),
        (Fetch, whole.fetches[0], Fetch("", 0, 0, 0.0, 0.0, 0.0, 0.0, np.empty(0))),
    ):
        for item in dataclasses.fields(kind):
            if item.name not in ("steps", "losses", "walls_s"):
                assert getattr(one, item.name) != getattr(plain, item.name), f"{kind.__name__}.{item.name} is not tried"


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


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    whole = full().save(tmp_path / "run.npz").read_bytes()
    broken = tmp_path / "broken.npz"
    broken.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
        load(broken)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = bytearray(full().save(tmp_path / "run.npz").read_bytes())
    at = whole.index(b"steps.wall_s") + 60
    whole[at : at + 8] = b"\xff" * 8
    (tmp_path / "run.npz").write_bytes(bytes(whole))
    with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
        load(tmp_path / "run.npz")


def test_a_flipped_byte_anywhere_is_survived(tmp_path: Path) -> None:
    whole = full().save(tmp_path / "run.npz").read_bytes()
    broken = tmp_path / "broken.npz"
    for at in range(0, len(whole), 37):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            load(broken)
        except RecordingError:
            continue


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

    def breaks(file: Any, arrays: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(recording_file, "_write", breaks)
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
    with pytest.raises(RecordingError, match=r"newer gpu_doctor .* upgrade jupyter-gpu-doctor"):
        load(path)


def test_a_file_from_before_waits_were_counted_says_they_were_not(tmp_path: Path) -> None:
    path = full().save(tmp_path / "run.npz")
    with np.load(path) as archive:
        kept = {name: archive[name] for name in archive.files if name != "steps.syncs"}
    np.savez(path, **kept)
    again = load(path)
    assert np.isnan(again.steps.syncs).all()
    syncs = np.full(len(again.steps), np.nan)
    same(again, dataclasses.replace(full(), steps=dataclasses.replace(full().steps, syncs=syncs)))


def test_unknown_keys_of_the_header_are_passed_over(tmp_path: Path) -> None:
    same(load(rewritten(full().save(tmp_path / "run.npz"), of_tomorrow=[1])), full())


def test_a_file_of_old_lacks_what_was_counted_later(tmp_path: Path) -> None:
    path = full().save(tmp_path / "run.npz")
    with np.load(path) as archive:
        (fetch,) = json.loads(bytes(archive["header"]).decode())["fetches"]
    later = ("ready_batches", "empty_share", "starts", "start_s", "first_s", "ends", "end_s", "collate_cpu_s")
    old = load(rewritten(path, fetches=[{name: value for name, value in fetch.items() if name not in later}]))
    assert [getattr(old.fetches[0], name) for name in later] == [None] * len(later)


def test_settings_are_told_in_words() -> None:
    assert describe({}) == "as written"
    assert describe({"num_workers": 4, "amp": "bf16"}) == "num_workers=4, amp=bf16"


def test_steps_of_some_columns_are_filled_honestly() -> None:
    steps = Steps.of(wall_s=[1.0, 2.0], forward_s=[0.5, 0.5])
    assert steps.start_s.tolist() == [0, 1]
    assert steps.other_s.tolist() == [0.5, 1.5]
    assert np.isnan(steps.samples).all()
    with pytest.raises(ValueError, match="one length"):
        Steps.of(wall_s=[1.0], samples=[1.0, 2.0])

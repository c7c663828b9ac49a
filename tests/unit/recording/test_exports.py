"""A recording given to pandas and to TensorBoard, and read back by TensorBoard's own reader."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gpu_doctor.recording import Losses, Metric, Recording, Series
from gpu_doctor.recording.steps import STEP_COLUMNS, Steps


def steps(**columns: Any) -> Steps:
    """Rows of which only these columns were measured."""
    rows = len(columns["wall_s"])
    return Steps(**{name: columns.get(name, np.full(rows, np.nan)) for name in STEP_COLUMNS})


def recorded() -> Recording:
    """Two rows of 1 and 3 steps, of 0.1 and 0.6 s."""
    rows = steps(
        start_s=np.array([0.0, 0.1]),
        wall_s=np.array([0.1, 0.6]),
        count=np.array([1.0, 3.0]),
        samples=np.array([8.0, 24.0]),
        data_wait_s=np.array([0.05, 0.3]),
        sync_s=np.array([np.nan, np.nan]),
    )
    gauge = Metric("gpu_util_pct", "%", "GPU", "utilization", device=1)
    readings = Series(gauge, times_s=np.array([0.05, 0.5, 9.0]), values=np.array([10.0, np.nan, 30.0]))
    losses = Losses(step=np.array([0.0, 3.0]), samples=np.array([0.0, 24.0]), value=np.array([2.0, 1.0]))
    return Recording(steps=rows, series=(readings,), losses=losses, started_at=1000.0)


def read_back(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def scalars(folder: Path, tag: str) -> list[tuple[int, float, float]]:
    """Step, Unix time and value of what TensorBoard's reader finds under a tag."""
    found = read_back(folder).Tensors(tag)
    return [(one.step, one.wall_time, float(one.tensor_proto.float_val[0])) for one in found]


def test_a_table_has_a_row_for_each_row_of_steps_by_the_number_of_its_last_step() -> None:
    frame = recorded().to_pandas()
    assert list(frame.index) == [1, 4]
    assert list(frame["wall_s"]) == [0.1, 0.6]
    assert frame["sync_s"].isna().all()


def test_tensorboard_reads_milliseconds_a_step_by_step_and_time(tmp_path: Path) -> None:
    folder = recorded().to_tensorboard(tmp_path / "runs" / "one")
    (first, last) = scalars(folder, "gpu_doctor/step_ms")
    assert first == (1, pytest.approx(1000.1), pytest.approx(100.0))
    assert last == (4, pytest.approx(1000.7), pytest.approx(200.0))
    assert [value for *_, value in scalars(folder, "gpu_doctor/data_wait_ms")] == pytest.approx([50.0, 100.0])
    assert [value for *_, value in scalars(folder, "gpu_doctor/samples_per_s")] == pytest.approx([80.0, 40.0])


def test_what_was_not_measured_is_not_written(tmp_path: Path) -> None:
    folder = recorded().to_tensorboard(tmp_path)
    assert "gpu_doctor/sync_ms" not in read_back(folder).Tags()["tensors"]
    assert [step for step, *_ in scalars(folder, "machine/gpu_util_pct/gpu1")] == [1, 4]


def test_losses_stand_at_their_steps_counted_from_one(tmp_path: Path) -> None:
    found = scalars(recorded().to_tensorboard(tmp_path), "train/loss")
    assert [(step, value) for step, _, value in found] == [(1, 2.0), (4, 1.0)]


def test_the_diagnosis_is_a_text_that_markdown_leaves_as_it_is(tmp_path: Path) -> None:
    hostile = "Waiting for data\n<script>alert(1)</script>"
    folder = recorded().to_tensorboard(tmp_path, hostile)
    (one,) = read_back(folder).Tensors("gpu_doctor/diagnosis")
    text = one.tensor_proto.string_val[0].decode()
    assert [line[4:] for line in text.splitlines()] == hostile.splitlines()
    assert all(line.startswith("    ") for line in text.splitlines())


def test_a_run_without_steps_is_written(tmp_path: Path) -> None:
    empty = Recording(steps=steps(wall_s=np.empty(0), count=np.empty(0)))
    assert len(empty.to_pandas()) == 0
    assert read_back(empty.to_tensorboard(tmp_path, "nothing")).Tags()["tensors"] == ["gpu_doctor/diagnosis"]


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("tensorboard", "to_tensorboard")])
def test_a_missing_package_is_said_with_how_to_install_it(
    package: str, method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = builtins.__import__

    def lacking(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return plain(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(ImportError, match=rf"jupyter-gpu-doctor\[{package}\]"):
        getattr(recorded(), method)(*([tmp_path] if method == "to_tensorboard" else []))


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(OSError, match="runs"):
        recorded().to_tensorboard(tmp_path / "runs")

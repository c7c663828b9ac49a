"""Damaged and edited files are refused in one sentence; what a loop really leaves behind is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.diagnosis import measure
from gpu_doctor.recording import Recording, RecordingError, Steps, load

ROWS = 40


Header = dict[str, Any]


Arrays = dict[str, Any]


def written(path: Path, header: Callable[[Header], Any] | str, arrays: Callable[[Arrays], Any]) -> Path:
    """A recording's file with other values in its header (a text = instead of it) and its arrays."""
    steps = Steps.of(wall_s=np.full(ROWS, 0.1), data_wait_s=np.full(ROWS, 0.05))
    whole = dict(np.load(Recording(steps=steps, duration_s=4.0).save(path / "whole.npz")).items())
    held = json.loads(bytes(whole["header"]).decode())
    if callable(header):
        header(held)
    text = header if isinstance(header, str) else json.dumps(held)
    whole["header"] = np.frombuffer(text.encode(), dtype=np.uint8)
    arrays(whole)
    np.savez(path / "edited.npz", **whole)
    return path / "edited.npz"


def nothing(_: Any) -> None:
    """Leaves it as it is."""


METRIC = {"name": "gpu_util_pct", "unit": "%", "label": "GPU", "group": "utilization", "device": 0}


LINE = {"file": "a.py", "line": 1, "function": "f", "text": "x", "phase": "other"}
CARD = {"index": 0, "name": "a card", "uuid": "", "memory_bytes": None}


EDITED: dict[str, tuple[Any, Any]] = {
    "endless schema": (lambda h: h.update(schema=float("inf")), nothing),
    "brackets": ("[" * 200_000, nothing),
    "duration": (lambda h: h.update(duration_s="x"), nothing),
    "notes": (lambda h: h.update(notes=[1, None]), nothing),
    "no number of workers": (lambda h: h["setup"].update(loaders=[{"key": "a", "num_workers": float("nan")}]), nothing),
    "no number of cores": (lambda h: h["setup"].update(usable_cores=float("nan")), nothing),
    "outcome": (lambda h: h.update(outcome=None), nothing),
    "settings": (lambda h: h.update(settings=[1]), nothing),
    "device": (lambda h: h["setup"].update(device=None), nothing),
    "models": (lambda h: h["setup"].update(models=[3]), nothing),
    "layers": (lambda h: h["setup"].update(layers={"Linear": "two"}), nothing),
    "short column": (nothing, lambda a: a.update({"steps.forward_s": a["steps.forward_s"][:5]})),
    "column of columns": (nothing, lambda a: a.update({"steps.forward_s": a["steps.forward_s"][:, None]})),
    "one number": (nothing, lambda a: a.update({"steps.wall_s": np.float64(1)})),
    "negative counts": (nothing, lambda a: a.update({"steps.count": -a["steps.count"]})),
    "counts of nothing": (nothing, lambda a: a.update({"steps.count": 0 * a["steps.count"]})),
    "no count": (nothing, lambda a: a.update({"steps.count": a["steps.count"] * np.nan})),
    "endless seconds": (nothing, lambda a: a.update({"steps.wall_s": a["steps.wall_s"] * np.inf})),
    "endless duration": (lambda h: h.update(duration_s=float("inf")), nothing),
    "more bytes than numpy counts": (lambda h: h.update(peak_bytes=2**70), nothing),
    "a device of that number": (
        lambda h: h.update(series=[{**METRIC, "device": 1e300}]),
        lambda a: a.update({"series.0.times_s": np.arange(3.0), "series.0.values": np.arange(3.0)}),
    ),
    "endless share": (lambda h: h.update(lines=[{**LINE, "share": float("inf")}]), nothing),
    "no share": (lambda h: h.update(lines=[{**LINE, "share": float("nan")}]), nothing),
    "capability of three": (lambda h: h["setup"].update(device={**CARD, "capability": [8, 0, 0]}), nothing),
    "losses": (nothing, lambda a: a.update({"losses.step": np.arange(3.0)})),
    "series": (
        lambda h: h.update(series=[METRIC]),
        lambda a: a.update({"series.0.times_s": np.arange(5.0), "series.0.values": np.arange(3.0)}),
    ),
    "texts in a series": (
        lambda h: h.update(series=[METRIC]),
        lambda a: a.update({"series.0.times_s": np.arange(2.0), "series.0.values": np.array(["a", "b"])}),
    ),
}


@pytest.mark.parametrize("edit", EDITED)
def test_what_is_not_of_the_form_is_refused(tmp_path: Path, edit: str) -> None:
    with pytest.raises(RecordingError, match="not a complete gpu_doctor recording"):
        load(written(tmp_path, *EDITED[edit]))


def test_epochs_of_any_number_take_no_memory(tmp_path: Path) -> None:
    numbers = np.repeat([0.0, 1e18, 1e300, 1e300], 10)
    samples = np.repeat([4.0, 2.0, 8.0, 8.0], 10)
    path = written(tmp_path, nothing, lambda a: a.update({"steps.epoch": numbers, "steps.samples": samples}))
    assert measure(load(path)).epoch_samples == 40.0, "of the epochs that are complete"


def test_settings_of_any_literal_pass(tmp_path: Path) -> None:
    settings = {"vary.betas": [0.9, 0.99], "vary.given": None, "vary.more": {"a": 1}, "amp": "bf16"}
    path = written(tmp_path, lambda h: h.update(settings=settings), nothing)
    assert load(path).settings == settings


def test_what_a_loop_leaves_behind_is_read_though_it_was_set_up_with_numbers_of_numpys(tmp_path: Path) -> None:
    net = nn.Linear(4, 1)
    options: dict[str, Any] = {"num_workers": np.int64(1), "prefetch_factor": np.int64(2)}
    loader = DataLoader(TensorDataset(torch.rand(40, 4)), batch_size=4, **options)
    with gpu_doctor.watch() as run:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for (x,) in loader:
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert run.recording is not None
    recording = load(run.recording.save(tmp_path / "run.npz"))
    assert recording.setup.loaders[0].prefetch_factor == 2
    assert recording.steps.count.sum() == 10


def test_numbers_of_numpys_are_written_as_plain_ones(tmp_path: Path) -> None:
    steps = Steps.of(wall_s=[1.0])
    recording = Recording(steps=steps, settings={"rate": np.float64(0.1), "batch_size": np.int64(8)})  # type: ignore[dict-item]
    settings = load(recording.save(tmp_path / "run.npz")).settings
    assert settings == {"rate": 0.1, "batch_size": 8} and type(settings["batch_size"]) is int
    odd = Recording(steps=steps, settings={"rate": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="plain values only, not a object"):
        odd.save(tmp_path / "odd.npz")


def test_what_earlier_versions_recorded_besides_is_skipped(tmp_path: Path) -> None:
    more = {"world": {"world_size": 2, "reduce_s": 0.1}, "loss_by_hand": {"rows": 8}}
    recording = load(written(tmp_path, lambda header: header["setup"].update(more), nothing))
    assert recording.setup.world is not None and recording.setup.world.world_size == 2

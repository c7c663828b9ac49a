"""Batches and evaluation passes are counted whole, also where only some of the fetches are metered."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture.fetch import tally
from gpu_doctor.capture.fetch.tally import MOST_SKIPPED
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.taps.dataloader import tap
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Fetch, Recording
from gpu_doctor.recording.steps import TRAINING
from tests.support.one_tap import on

TRAINED, HELD_OUT = 4000, 800


def quick(n: int, **options: Any) -> DataLoader[Any]:
    """A loader over a tensor: a fetch takes some ten microseconds."""
    return DataLoader(TensorDataset(torch.rand(n, 4)), batch_size=8, **options)


def ran(code: str, **more: Any) -> tuple[Recording, Counter[str]]:
    """The code, run as a cell, and what it counted itself."""
    model, counted = nn.Linear(4, 1), Counter[str]()
    space = {
        "torch": torch,
        "loader": quick(TRAINED),
        "held_out": quick(HELD_OUT),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "counted": counted,
    }
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return gpu_doctor.case(code, space | more).run(), counted
    finally:
        torch.set_num_threads(before)


def fetch(recording: Recording, samples: int) -> Fetch:
    """The fetches of the loader over so many samples."""
    (key,) = (one.key for one in recording.setup.loaders if one.dataset_len == samples)
    return next(one for one in recording.fetches if one.loader == key)


EVALUATED = """
for epoch in range(4):
    for (x,) in loader:
        counted["trained"] += 1
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        counted["passes"] += 1
        for (x,) in held_out:
            counted["held out"] += 1
            model(x)
            if epoch % 2 and counted["held out"] % 10 == 0:
                break
    model.train()
"""


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_every_batch_and_every_pass_counts(options: dict[str, Any]) -> None:
    recording, counted = ran(EVALUATED, held_out=quick(HELD_OUT, **options))
    trained, held_out = fetch(recording, TRAINED), fetch(recording, HELD_OUT)
    assert trained.delivered == counted["trained"] == 2000
    assert trained.batches <= 2000
    assert trained.passes == 0
    assert held_out.delivered == counted["held out"] == 220  # every other pass is left after ten batches
    assert held_out.passes == counted["passes"] == 4
    assert measure(recording).evaluation_passes == 4


LOOKED_AT = """
for (x,) in held_out:
    x.mean()
for epoch in range(4):
    for i, (x,) in enumerate(loader):
        model(x).sum().backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_a_loader_that_was_walked_before_is_not_beside_the_one_that_is_trained_from() -> None:
    recording, _ = ran(LOOKED_AT)
    vitals = measure(recording)
    assert fetch(recording, HELD_OUT).delivered == 100 and fetch(recording, TRAINED).delivered == 2000
    training = recording.steps.where(recording.steps.kind == TRAINING)
    assert training.count.sum() == 1000 and set(training.batches.tolist()) == {2.0}  # from the first one on
    assert vitals.batches_per_step == 2.0
    assert vitals.loaders_at_once == 1.0


def test_a_loader_built_anew_adds_up() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in range(5):
            list(quick(24))
        halfway = recorder.so_far().fetches
        next(iter(quick(24)))
    assert [(one.delivered, one.passes) for one in halfway] == [(15, 0)]
    assert [one.delivered for one in recorder.close().fetches] == [16]


def test_fetches_of_a_loop_without_steps_are_metered() -> None:
    recorder = Recorder()
    with on(tap, recorder):
        for _ in DataLoader(TensorDataset(torch.zeros(4000, 2)), batch_size=2):
            pass
    (found,) = recorder.so_far().fetches
    assert found.delivered == 2000
    assert 2000 - 2 * MOST_SKIPPED <= found.batches <= 2000
    assert found.wall_s > 0


class Stream(IterableDataset[Any]):
    """Forty samples without a length: the end of a pass shows within a fetch."""

    def __iter__(self) -> Any:
        return iter(torch.zeros(40, 2))


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "persistent_workers": True}])
@pytest.mark.parametrize("dataset", [TensorDataset(torch.zeros(40, 2)), Stream()])
def test_the_request_at_the_end_of_a_pass_counts_as_no_fetch(
    dataset: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "COST_SHARE", 1e-9)  # every other fetch is skipped
    monkeypatch.setattr(tally, "MOST_SKIPPED", 1)
    recorder, loader = Recorder(), DataLoader(dataset, batch_size=8, **options)
    with on(tap, recorder):
        for _ in range(40):
            list(loader)
    (found,) = recorder.close().fetches
    assert found.delivered == 200 and 198 <= found.batches <= 200

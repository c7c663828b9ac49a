"""A trial does no harm: what can be reached before it is there bit for bit after it, in the same objects, however it
ended, over many kinds of cells as people write them. `test_restore.py` runs this file in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.recording import Settings
from tests.support.cells import CELLS, ended, notebook
from tests.support.everything import Everything
from tests.support.restoring import ENDINGS, OUTCOMES, as_before, tried

pytestmark = [  # the cells leave files open, as people do, and the collector closes them in whichever test comes later
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

RESTORED = [name for name, cell in CELLS.items() if cell.restored]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    variables, folder, places = dict(os.environ), Path.cwd(), list(sys.path)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    as_before(variables, folder, places)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", RESTORED)
def test_everything_is_as_it_was(name: str, ending: str, tmp_path: Path) -> None:
    kind = CELLS[name]
    space = notebook(kind, tmp_path)
    try:
        before, after, outcome = tried(kind, ending, space)
        assert outcome == OUTCOMES.get(ending, "interrupted" if ending == "interrupted" else outcome)
        assert ending != "normal" or outcome in ("completed", "budget-reached")
        told = before.differences(after)
        assert not told, "\n".join(told)
        assert before.digest == after.digest
    finally:
        ended(space)


TURNED: list[tuple[Settings, str]] = [
    ({"num_workers": 1}, "plain SGD"),
    ({"batch_size": 8}, "metrics: own class, list, deque, defaultdict, Counter"),
    ({"batch_size": 8}, "samplers and seeds of many makes"),
    ({"amp": "bf16"}, "AdamW, cosine restarts, a scaler that is on"),
    ({"amp": "bf16"}, "GAN with two optimizers"),
    ({"fused_optimizer": True}, "AdamW, cosine restarts, a scaler that is on"),
    ({"fused_optimizer": True}, "EMA by deepcopy and AveragedModel"),
    ({"channels_last": True}, "convolutions"),
]
"""What the knobs that touch loaders, forwards, optimizers and the places of weights are turned to."""


@pytest.mark.parametrize("ending", ["normal", "out of memory", "interrupted"])
@pytest.mark.parametrize(("settings", "name"), TURNED)
def test_everything_is_as_it_was_whatever_is_turned(settings: Settings, name: str, ending: str, tmp_path: Path) -> None:
    kind = CELLS[name]
    space = notebook(kind, tmp_path)
    try:
        before, after, outcome = tried(kind, ending, space, settings)
        wanted = OUTCOMES.get(ending, ending)
        assert outcome == wanted or (ending == "normal" and outcome in ("completed", "budget-reached"))
        assert before.differences(after) == []
        assert before.digest == after.digest
    finally:
        ended(space)


@pytest.mark.parametrize("name", RESTORED)
def test_the_digest_would_notice(name: str, tmp_path: Path) -> None:
    """The cell changes what the digest is of: else the proof above would prove nothing."""
    space = notebook(CELLS[name], tmp_path)
    try:
        before = Everything(space)
        assert before.differences(Everything(space)) == []
        exec(compile(CELLS[name].code, "<cell>", "exec"), space)
        assert Everything(space).digest != before.digest
    finally:
        ended(space)


@pytest.mark.parametrize("name", RESTORED)
def test_what_follows_is_as_if_there_had_been_no_trial(name: str, tmp_path: Path) -> None:
    """The cell, run after a trial, trains to the same numbers as in a notebook without a trial."""
    kind, digests = CELLS[name], []
    folder, places, variables = Path.cwd(), list(sys.path), dict(os.environ)
    for trials in (0, 1):
        space = notebook(kind, tmp_path)
        try:
            for _ in range(trials):
                tried(kind, "normal", space)
            exec(compile(kind.code, "<cell>", "exec"), space)
            digests.append(Everything(space, identities=False))
        finally:
            ended(space)
            as_before(variables, folder, places)
    assert digests[0].differences(digests[1]) == []


@pytest.mark.parametrize("name", RESTORED)
def test_nothing_is_said_to_be_lost_and_asking_changes_nothing(name: str, tmp_path: Path) -> None:
    space = notebook(CELLS[name], tmp_path)
    try:
        case = gpu_doctor.case(CELLS[name].code, space)
        before = Everything(space)
        assert case.beforehand().lost == ()
        assert before.differences(Everything(space)) == []
    finally:
        ended(space)


def test_workers_from_an_earlier_run_are_left_alone(tmp_path: Path) -> None:
    """Their random numbers go on where they were: the trial's sides have workers of their own, the same ones each."""
    kind = CELLS["a generator, and persistent workers alive from an earlier run"]
    served: list[list[torch.Tensor]] = []
    for trials in (0, 1):
        space = notebook(kind, tmp_path)
        loader = space["workers"]
        staying = loader._iterator
        try:
            for _ in range(trials):
                case = gpu_doctor.case(kind.code, space)
                effect = case.trial({"threads": 1}, steps=6, seconds=3.0, pairs=1)
                assert effect.loss_verdict == "same" and not effect.loss_drift, effect
                assert all("worker" not in note for note in case.trials[-1][1].notes)
            assert loader._iterator is staying
            assert all(worker.is_alive() for worker in staying._workers)
            served.append([x for x, _ in loader])
        finally:
            ended(space)
    assert all(torch.equal(a, b) for a, b in zip(*served, strict=True))


def test_a_state_that_does_not_fit_is_refused_with_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"torch": torch, "big": torch.zeros(2**20)}
    monkeypatch.setattr("gpu_doctor.trials.snapshot.snapshot.FREE_SHARE", 1e-7)
    effect = gpu_doctor.case("big += 1", space).trial({"threads": 1})
    assert effect.outcome == "refused"
    assert "the state, 4 MiB" in effect.reason and "may be used" in effect.reason
    assert not space["big"].any()

"""The knob worker_threads: what the workers really compute with, refused where workers would hang, and put back."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import gpu_doctor
from gpu_doctor.capture.describe import loaders
from gpu_doctor.recording import Setup
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.knob import Refused, TrialScope
from gpu_doctor.trials.knobs.worker_threads import KNOB
from gpu_doctor.trials.worker_init import WorkerThreads


class Counted(Dataset[Any]):
    """Each item is the number of threads that torch has where it is made."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(torch.get_num_threads())


def own(worker: int) -> None:
    """A worker_init_fn of the user's own."""
    torch.set_num_threads(3)


def make(**options: Any) -> DataLoader[Any]:
    return DataLoader(Counted(), batch_size=4, **options)


def setup_of(loader: DataLoader[Any]) -> Setup:
    return Setup(loaders=(loaders.describe(loader, role="training"),), usable_cores=4.0)


def test_found_choices_and_code() -> None:
    setup = setup_of(make(num_workers=2))
    assert KNOB.found(setup) == 0 and KNOB.found(Setup()) is None
    assert [choice.value for choice in KNOB.choices(setup)] == [0, 1, 2, 4]
    assert KNOB.refusal(1, setup) == "" and KNOB.parsed("1") == 1
    with pytest.raises(ValueError, match="of at least 0"):
        KNOB.parsed("-1")
    compile(KNOB.code(1, setup).replace("...", "*a"), "<code>", "exec")


def test_refused_without_workers_and_where_forked_workers_would_hang() -> None:
    assert "set num_workers above 0 first" in KNOB.refusal(1, setup_of(make()))
    assert "OpenMP" in KNOB.refusal(2, setup_of(make(num_workers=1, multiprocessing_context="fork")))
    assert KNOB.refusal(2, setup_of(make(num_workers=1, multiprocessing_context="spawn"))) == ""
    assert "no DataLoader" in KNOB.refusal(1, Setup(torch_version="2"))
    loader = make(num_workers=1, multiprocessing_context="fork")
    with pytest.raises(Refused, match="hang"), knobs.turned({"worker_threads": 2}, TrialScope({}, setup_of(loader))):
        pytest.fail("not reached")


@pytest.mark.parametrize("init", [None, own])
def test_the_workers_compute_with_so_many_threads_and_the_loader_is_put_back(init: Any) -> None:
    loader = make(num_workers=1, multiprocessing_context="fork", worker_init_fn=init)
    was, scope = dict(vars(loader)), TrialScope({"loader": loader}, setup_of(loader))
    as_written = {float(one) for batch in loader for one in batch}
    assert as_written == ({1.0} if init is None else {3.0})
    with knobs.turned({"worker_threads": 1}, scope):
        assert {float(one) for batch in loader for one in batch} == {1.0}
    assert vars(loader) == was


def test_it_reaches_spawned_workers() -> None:
    sent = pickle.loads(pickle.dumps(WorkerThreads(2, own)))
    assert (sent.count, sent.own) == (2, own)
    before = torch.get_num_threads()
    try:
        sent(0)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_trial_together_with_workers() -> None:
    loader = make()
    net = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    names = {"loader": loader, "net": net, "opt": opt}
    cell = "for x in loader:\n    opt.zero_grad()\n    net(x[:, None].float()).sum().backward()\n    opt.step()\n"
    case = gpu_doctor.case(cell, names)
    case.run()
    assert "num_workers above 0" in case.trial({"worker_threads": 1}, steps=2).reason
    effect = case.trial({"worker_threads": 1, "num_workers": 1}, steps=2, seconds=5, pairs=1)
    assert effect.outcome in ("completed", "budget-reached"), effect.reason
    assert loader.worker_init_fn is None and loader.num_workers == 0

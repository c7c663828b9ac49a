"""What a run leaves behind when it has ended, and what it leaves alone: other threads, other processes, names."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import gpu_doctor
from gpu_doctor.trials import watch
from gpu_doctor.trials.case import Case
from gpu_doctor.trials.interrupts import ends_on_threads, handlers_put_back

BATCHES = 40


def loader() -> DataLoader[Any]:
    """As many batches."""
    return DataLoader(TensorDataset(torch.rand(4 * BATCHES, 4)), batch_size=4)


def train() -> None:
    """One epoch."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for (x,) in loader():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that wraps what we have wrapped and leaves that on, as libraries do; taken off after the test."""
    seams = ((DataLoader, "__iter__"), (_BaseDataLoaderIter, "__next__"), (torch.autograd, "backward"))
    before = [getattr(owner, name) for owner, name in seams]

    def wrap() -> None:
        for owner, name in seams:
            ours = getattr(owner, name)
            setattr(owner, name, lambda *args, _ours=ours, **kwargs: _ours(*args, **kwargs))

    yield wrap
    for (owner, name), one in zip(seams, before, strict=True):
        setattr(owner, name, one)


def test_no_later_loop_is_ended_where_the_cell_has_wrapped_what_we_had(wrapped: Any) -> None:
    def body() -> None:
        wrapped()
        train()

    assert Case(body, None).run(steps=5).outcome == "budget-reached"
    train()
    assert sum(1 for _ in loader()) == BATCHES


@pytest.mark.parametrize("batches", ["[torch.ones(8, 4)] * 6", "torch.utils.data.DataLoader(torch.ones(80, 4), 8)"])
def test_a_watch_that_is_kept_keeps_nothing_of_the_block(batches: str) -> None:
    code = f"""
with gpu_doctor.watch() as run:
    for x in {batches}:
        net(x).sum().backward()
        optimizer.step()
"""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    other = nn.Linear(1, 1)
    names = {"gpu_doctor": gpu_doctor, "torch": torch, "net": net, "optimizer": optimizer, "other": other}
    refs: list[weakref.ref[Any]] = [weakref.ref(net), weakref.ref(optimizer), weakref.ref(other)]
    exec(code, names)
    run = names.pop("run")
    assert isinstance(run, watch.Watch)
    assert run.recording is not None and run.recording.setup.model is not None
    del net, optimizer, other, names
    gc.collect()
    assert [ref() for ref in refs] == [None] * 3


def test_a_tensor_that_a_watched_block_lets_go_of_is_freed() -> None:
    given, gone = torch.rand(8), list[Any]()
    ref = weakref.ref(given)
    names: dict[str, Any] = {"gpu_doctor": gpu_doctor, "given": given, "gone": lambda: gone.append(ref())}
    del given
    exec("with gpu_doctor.watch():\n    del given\n    gone()", names)
    assert gone == [None]


def test_of_a_functions_names_a_watch_keeps_no_tensor() -> None:
    net, given = nn.Linear(4, 1), torch.rand(8)
    names = watch._names(sys._getframe())
    assert names["net"] is net and "given" not in names and names["torch"] is torch
    assert given is not None


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="no fork")
def test_a_forked_process_is_not_ended_with_the_run() -> None:
    def stepped() -> None:
        """As `train`, but for the backward: torch has none in a fork of a process whose autograd had threads."""
        weight = torch.zeros(1, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in loader():
            weight.grad = torch.ones(1)
            optimizer.step()

    def body() -> None:
        child = multiprocessing.get_context("fork").Process(target=stepped)
        child.start()
        child.join()
        codes.append(child.exitcode)

    codes: list[int | None] = []
    assert Case(body, None).run(steps=5).outcome == "completed"
    assert codes == [0]


def test_a_budget_ends_a_loop_on_a_thread_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    def body() -> None:
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()

    before = threading.excepthook
    recording = Case(body, None).run(steps=5)
    assert (recording.outcome, recording.steps.count.sum()) == ("budget-reached", 5)
    assert threading.excepthook is before
    assert "RunEnded" not in capfd.readouterr().err


def test_another_error_on_a_thread_is_shown_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    with ends_on_threads(KeyError) as said:
        for error in (KeyError("ours"), ValueError("theirs")):
            thread = threading.Thread(target=_raise, args=(error,))
            thread.start()
            thread.join()
    assert said == ["'ours'"]
    assert [one.exc_type for one in seen] == [ValueError]


def _raise(error: Exception) -> None:
    raise error


@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="torch sets no handler")
def test_torch_hears_of_dead_workers_after_a_trial_too(monkeypatch: pytest.MonkeyPatch) -> None:
    handling: Any = sys.modules["torch.utils.data._utils.signal_handling"]
    before = signal.getsignal(signal.SIGCHLD)
    try:
        monkeypatch.setattr(handling, "_SIGCHLD_handler_set", False)
        with handlers_put_back():
            handling._set_SIGCHLD_handler()
            assert handling._SIGCHLD_handler_set
        assert not handling._SIGCHLD_handler_set
        handling._set_SIGCHLD_handler()
        with handlers_put_back():
            handling._set_SIGCHLD_handler()
        assert handling._SIGCHLD_handler_set
    finally:
        signal.signal(signal.SIGCHLD, before)

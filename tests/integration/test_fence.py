"""Whatever of ours raises in the middle of a real loop, the loop does not notice: a sample; all in `faults/`."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.capture.patching import active
from gpu_doctor.capture.record import running
from gpu_doctor.capture.taps.optimizer import Steps
from tests.support.cells import FAULTY, TROUBLED
from tests.support.faults import (
    SEED,
    STAND_INS,
    STOPPED,
    Fault,
    InjectedFault,
    Injector,
    bare,
    faults_of,
    injected,
    one_thread,
    picked,
    seconds_of,
    survey,
    swept,
    trouble,
    watched,
)

pytestmark = pytest.mark.filterwarnings("ignore")

FEW = 8
"""Faults a loop."""
FEWER = 4
"""Faults in a cell with workers, in either process: a run takes longer there."""
SAMPLED = [name for name in FAULTY if "Lightning" not in name]  # to import it takes up to half a minute
PLAIN = FAULTY["plain SGD"]


def key_of(part: str) -> str:
    """The one function of ours on the path of the plain cell whose name ends so."""
    (found,) = (key for key in survey(PLAIN).functions() if key.rpartition(":")[0].endswith(part))
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if "spawned" in name else name for name in SAMPLED]
)
def test_a_fault_of_ours_is_not_noticed_by_the_cell(name: str) -> None:
    cell = FAULTY[name]
    faults = faults_of(cell, survey(cell))
    chosen = picked(faults, FEWER if cell.workers else FEW, f"{SEED} {name}")
    chosen += picked([one for one in faults if one.worker], FEWER, f"{SEED} {name}")
    row = swept(cell, chosen)
    assert not row.troubles, row.troubles
    assert row.faults


@pytest.mark.parametrize("name", TROUBLED)
def test_the_users_own_exception_arrives_as_it_is(name: str) -> None:
    """The same object, without a context of ours; with and without a fault."""
    loop = TROUBLED[name]
    with one_thread():
        plain, whole = bare(loop), watched(loop, Injector())
    assert (whole.error, whole.own_context) == (plain.error, plain.own_context) and whole.differences(plain) == []
    assert (plain.error is loop.error) == (name != "dataset-stops")  # which a `for` takes for the end of its loop
    row = swept(loop, picked(faults_of(loop, survey(loop)), FEW, f"{SEED} {name}"))
    assert not row.troubles, row.troubles


def test_a_fault_while_the_users_exception_is_on_its_way_leaves_that_one_alone() -> None:
    """The loader's tap hears of it in the dataset."""
    loop = TROUBLED["dataset-raises"]
    calls = survey(loop).here
    (key, number), *_ = (
        (key, count) for key, count in calls.items() if key.rpartition(":")[0].endswith("_pulling.<locals>.failed")
    )
    fault = Fault(key, number)  # its last call is the one on which the user's own code raises
    with one_thread():
        plain, outcome = bare(loop), injected(loop, fault)
    assert outcome.raised and not trouble(fault, outcome, plain)
    assert outcome.error is loop.error


def test_an_error_in_what_handles_an_error_is_not_noticed_either() -> None:
    row = swept(PLAIN, seconds_of(PLAIN, [Fault(key_of("_pulling.<locals>.sample"), 2)]))
    assert row.faults > 5
    assert not row.troubles, row.troubles


def test_a_fault_where_a_fetch_ends_leaves_nothing_on_its_fetcher() -> None:
    row = swept(PLAIN, [Fault(key_of(part), 2) for part in ("Meter.ends", "Meter.leave", "MeteredFetch.end")])
    assert row.faults == 3 and not row.troubles, row.troubles


def test_after_a_fault_nothing_of_ours_is_on_and_one_note_says_so() -> None:
    outcome = injected(PLAIN, Fault(key_of("Recorder.fold"), 2))
    assert outcome.raised and outcome.still_on == () and active() == ()
    (note,) = (one for one in outcome.notes if "injected" in one)
    assert note.startswith(STOPPED)


def test_the_injector_sees_a_fault_that_nothing_is_around() -> None:
    """Else this test would prove nothing: the stand-ins themselves are the fence, and nothing is around them."""
    fault = Fault(key_of("_pulling.<locals>.__next__"), 5)
    outcome = injected(PLAIN, fault)
    assert isinstance(outcome.error, InjectedFault)
    assert trouble(fault, outcome, bare(PLAIN)).startswith("reached the loop")
    assert all(reason for reason in STAND_INS.values())


def test_a_fault_in_a_hook_leaves_the_users_own_hooks_after_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch goes through its hooks while ours fails and is taken off."""

    def fails(*args: Any) -> Any:
        raise InjectedFault("injected")

    weight, heard = torch.ones(1, requires_grad=True), list[str]()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    with gpu_doctor.watch() as run:
        theirs = [
            register_optimizer_step_pre_hook(lambda *given: heard.append("before")),
            register_optimizer_step_post_hook(lambda *given: heard.append("after")),
        ]
        monkeypatch.setattr(Steps, "_add", fails)
        weight.sum().backward()
        optimizer.step()
        for handle in theirs:
            handle.remove()
    assert heard == ["before", "after"] and weight.item() == 0.5
    assert run.recording is not None and run.recording.notes[0].startswith(STOPPED)


CELL = """
try:
    for _ in range(4000):
        for x, y in loader:
            begun()
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            counted.append(1)
            if len(counted) >= most:
                raise StopAsyncIteration
except StopAsyncIteration:
    pass
except Exception as error:
    came.append(error)
"""


class Arms:
    """Makes the cell's loop raise in ours."""

    __module__ = "torch._arms"  # a trial does not put it back

    def __init__(self, fault: Fault | None) -> None:
        self.injector = Injector(fault)
        self.on = False

    def __call__(self) -> None:
        """The loop has begun."""
        if not self.on and self.injector.fault is not None:
            self.on = True
            sys.settrace(self.injector.traced)


class Kept(list[Any]):
    """What a trial does not put back."""

    __module__ = "torch._kept"


def cell_space(fault: Fault | None) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    data = TensorDataset(torch.rand(32, 4), torch.rand(32, 1))
    return {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "loader": DataLoader(data, batch_size=4),
        "begun": Arms(fault),
        "counted": [],
        "came": Kept(),
        "most": 600,
    }


@pytest.mark.parametrize("part", ["", "Recorder.fold", "_pulling.<locals>.sample"])
def test_a_trial_ends_with_its_budget_and_with_a_fault_as_the_code_ends(part: str) -> None:
    """`RunEnded` passes the fence and the cell's own `except Exception`."""
    space = cell_space(Fault(key_of(part), 2) if part else None)
    case = gpu_doctor.case(CELL, space)
    try:
        effect = case.trial({}, steps=20, seconds=20.0, pairs=1)
    finally:
        sys.settrace(None)
    assert space["came"] == []
    assert space["begun"].injector.raised == bool(part)
    assert running() is None and active() == ()
    assert effect.outcome == "budget-reached", effect

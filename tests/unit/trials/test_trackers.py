"""What a trial reports to experiment trackers: nothing, by the table, with stand-ins of the trackers' shape."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.trials.side_effects.inert import NOTHING
from gpu_doctor.trials.side_effects.tracker_table import TRACKERS, Tracker
from gpu_doctor.trials.side_effects.trackers import open_runs, unlogged

LOOP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(80, 4), batch_size=4):
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    {log}
"""


def named(patterns: str) -> list[str]:
    """Names of functions that such patterns mean: `log_x` for `log_*`."""
    return [one.replace("[!_]*", "anything").replace("*", "x") for one in patterns.split() if one != "__init__"]


def stand_in(place: str, functions: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the tracker's name, or a class in one, with these functions."""
    module_name, _, cls_name = place.partition(":")
    module = sys.modules.get(module_name)
    if not getattr(module, "stand_in", False):
        module = ModuleType(module_name)
        module.stand_in = True  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module_name, module)
    if not cls_name:
        vars(module).update(functions)
        return module
    cls = type(cls_name, (), {**functions, "__module__": module_name})
    setattr(module, cls_name, cls)
    return cls


@pytest.mark.parametrize("tracker", TRACKERS, ids=lambda one: one.name)
def test_every_function_of_the_table_does_nothing_and_comes_back(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    calls: list[Any] = []

    def function(name: str) -> Any:
        def reporting(*args: Any, **named: Any) -> None:
            sent.append(name)

        reporting.__name__ = name
        return reporting

    for place, patterns in tracker.muted.items():
        functions = {name: function(name) for name in named(patterns)}
        owner = stand_in(place, functions, monkeypatch)
        owner = owner() if isinstance(owner, type) else owner
        calls += [getattr(owner, name) for name in functions]
    notes: list[str] = []
    with unlogged(notes):
        for call in calls:
            call()
    assert sent == [] and notes == [f"{tracker.name}: the trial logged nothing there."]
    assert patching.active() == ()
    for call in calls:
        call()
    assert len(sent) == len(calls)


@pytest.fixture
def sent() -> list[str]:
    """What reached the account."""
    return []


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> Any:
    """Of the form of wandb 0.2x: a run binds the module's names when it begins and when it ends."""

    class Run:
        def __init__(self, config: Any = None) -> None:
            self.config = SimpleNamespace(_items=dict(config or {"lr": 0.1}))
            self.disabled = False

        def log(self, values: dict[str, float]) -> None:
            sent.append("log")

        def finish(self) -> None:
            sent.append("finish")
            module.run = None

    def init(project: str = "", *, config: Any = None, mode: str = "online") -> Run:
        if mode != "disabled":
            sent.append("init")
        run = Run(config)
        run.disabled = mode == "disabled"
        module.run, module.config, module.log = run, run.config, run.log
        return run

    Run.__module__ = "wandb.sdk.wandb_run"
    module: Any = ModuleType("wandb")
    inner: Any = ModuleType("wandb.sdk.wandb_run")
    inner.Run = Run
    module.init, module.run, module.log, module.config = init, None, print, None
    module.finish = lambda: module.run.finish()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", inner)
    return module


def test_a_trial_of_a_cell_that_opens_a_run_opens_none_on_the_account(wandb: Any, sent: list[str]) -> None:
    source = "import wandb\nrun = wandb.init(project='mine')\n" + LOOP.format(log="wandb.log({'loss': loss.item()})")
    case = gpu_doctor.case(source + "wandb.finish()\n", {"__name__": "__main__"})
    case.run()
    assert sent.count("init") == 1 and sent.count("log") == 20
    wandb.run = None
    sent.clear()
    names = dict(vars(wandb))
    case.trial({"threads": 1}, steps=4, pairs=1)
    assert sent == [] and vars(wandb) == names and "WANDB_MODE" not in os.environ
    base, candidate = case.trials[-1]
    said = "wandb: the trial logged nothing there."
    assert said in base.notes and said in candidate.notes
    assert patching.active() == ()


def test_a_run_that_is_open_stays_open_and_gets_nothing(wandb: Any, sent: list[str]) -> None:
    run = wandb.init()
    taken, log = wandb.init, wandb.log
    assert open_runs() == ("wandb.run (Run)",)
    case = gpu_doctor.case("1", {"run": run})
    assert case.beforehand().lost == () and "wandb.run (Run)" in case.beforehand().notes[1]
    sent.clear()
    with unlogged([]):
        wandb.log({"loss": 1.0})
        run.log({"loss": 1.0})
        wandb.finish()
        inner = taken(config={"lr": 0.5, "depth": 3})
        inner.log({"loss": 1.0})
        assert inner.config._items == {"lr": 0.5, "depth": 3} and wandb.run is inner and inner.disabled
    assert sent == [] and wandb.run is run and wandb.log == log
    run.log({"loss": 1.0})
    assert sent == ["log"]


def test_without_any_there_is_no_word_and_the_users_own_mode_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    notes: list[str] = []
    before = list(sys.meta_path)
    with unlogged(notes):
        assert os.environ["WANDB_MODE"] == "disabled"
    assert os.environ["WANDB_MODE"] == "offline" and notes == [] and open_runs() == ()
    assert sys.meta_path == before


@pytest.mark.parametrize(("package", "refused"), [("tensorboardX", True), ("aim", True), ("wandb", False)])
def test_a_tracker_that_no_variable_keeps_off_has_to_be_loaded_before(
    package: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, package, raising=False)
    case = gpu_doctor.case(f"if False: import {package}", {})
    assert bool(case.beforehand().refusals) == refused
    monkeypatch.setitem(sys.modules, package, ModuleType(package))
    assert case.beforehand().refusals == ()


def test_a_tracker_that_another_thread_loads_while_a_side_ends_is_not_left_silent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate: Any = ModuleType("gate")
    gate.begun, gate.open = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "gate", gate)
    (tmp_path / "trackio.py").write_text(
        "import gate\nsent = []\ndef log(values):\n    sent.append('log')\ngate.begun.set()\ngate.open.wait()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    importer = threading.Thread(target=__import__, args=("trackio",))
    with unlogged([]):
        importer.start()
        gate.begun.wait()
    gate.open.set()
    importer.join()
    trackio: Any = sys.modules.pop("trackio")
    trackio.log({})
    assert trackio.sent == ["log"]


def test_what_stands_for_nothing_takes_whatever_loops_do_with_it() -> None:
    with NOTHING as one:
        assert one is NOTHING
    NOTHING.a["b"].c(1, d=2)
    one += 1
    assert one is NOTHING and list(NOTHING) == [] and f"{NOTHING.run.id}" == str(NOTHING) == "trial"
    assert "runs/" + NOTHING.id == "runs/trial" and int(NOTHING.step) + 1 == 1
    assert bool(NOTHING) and "x" not in NOTHING

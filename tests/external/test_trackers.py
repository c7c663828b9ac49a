"""Trials of cells that log to wandb or mlflow: the account gets nothing of it, and what was open is open afterwards.

Stand-ins for both, with the forms of wandb 0.2x and mlflow 2: neither is installed for the tests.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.trials.side_effects.trackers import open_runs, unlogged

LOOP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4):
    optimizer.zero_grad()
    loss = model(x).pow(2).sum()
    loss.backward()
    optimizer.step()
    {log}
"""


@pytest.fixture
def sent() -> list[str]:
    """What reached the account."""
    return []


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> Any:
    class Run:
        def __init__(self, mode: str = "online") -> None:
            self.disabled = mode == "disabled"
            self.config = {"lr": 0.1}
            self.url: Any
            if self.disabled:
                Run.url = property(lambda run: None)  # type: ignore[misc]
                self.log = lambda *args: None  # type: ignore[method-assign]

        url = property(lambda run: "https://wandb")  # type: ignore[assignment]

        def log(self, values: dict[str, float]) -> None:  # type: ignore[no-redef]
            sent.append("log")

        def finish(self) -> None:
            sent.append("finish")
            module.run = None

    def begun(run: Run) -> Run:
        module.run, module.config, module.log = run, run.config, run.log
        return run

    def init(**named: Any) -> Run:
        mode = named.get("mode", "online")
        if mode != "disabled":
            sent.append("init")
        return begun(Run(mode))

    Run.__module__ = "wandb.sdk.wandb_run"
    module: Any = ModuleType("wandb")
    module.__file__ = "/x/site-packages/wandb/__init__.py"
    module.init, module.run, module.log, module.config = init, None, print, None
    module.finish = lambda: module.run.finish()
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setitem(sys.modules, "wandb.sdk.wandb_run", SimpleNamespace(Run=Run))  # type: ignore[misc]
    return module


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch, sent: list[str]) -> Any:
    class MlflowClient:
        def log_metric(self, run: str, name: str, value: float) -> None:
            sent.append("metric")

    module: Any = ModuleType("mlflow")
    module.__file__ = "/x/site-packages/mlflow/__init__.py"
    runs: list[Any] = []

    def start_run() -> Any:
        sent.append("start")
        runs.append(SimpleNamespace(info=SimpleNamespace(run_id="1")))
        return runs[-1]

    def end_run() -> None:
        runs.pop()

    def log_metric(name: str, value: float) -> None:
        MlflowClient().log_metric("1", name, value)

    def active_run() -> Any:
        return runs[-1] if runs else None

    module.start_run, module.end_run, module.log_metric, module.active_run = start_run, end_run, log_metric, active_run
    client: Any = ModuleType("mlflow.tracking.client")
    client.MlflowClient = MlflowClient
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.tracking.client", client)
    return module


def test_a_trial_of_a_cell_that_opens_a_run_opens_none_on_the_account(wandb: Any, sent: list[str]) -> None:
    source = "import wandb\nrun = wandb.init(project='mine')\n" + LOOP.format(log="wandb.log({'loss': loss.item()})")
    case = gpu_doctor.case(source + "wandb.finish()\n", {"__name__": "__main__"})
    case.run()
    assert sent.count("init") == 1 and sent.count("log") == 100
    wandb.finish = print  # its last run is over
    wandb.run = None
    sent.clear()
    names = dict(vars(wandb))
    case.trial({"threads": 1}, steps=10)
    assert sent == [] and vars(wandb) == names and "WANDB_MODE" not in os.environ
    base, candidate = case.trials[-1]
    said = "wandb: the trial logged nothing there."
    assert said in base.notes and said in candidate.notes
    assert patching.active() == ()


def test_a_run_that_is_open_stays_open_and_gets_nothing(wandb: Any, sent: list[str]) -> None:
    run = wandb.init()
    log, url = wandb.log, run.url
    assert open_runs() == ("wandb.run (Run)",)
    assert "wandb.run (Run)" in gpu_doctor.case("1", {"wandb": wandb}).unrestorable()
    sent.clear()
    notes: list[str] = []
    with unlogged(notes):
        wandb.log({"loss": 1.0})
        run.log({"loss": 1.0})
        wandb.finish()
        inner = wandb.init(mode="online")
        inner.log({"loss": 1.0})
        assert wandb.config["lr"] == 0.1 and wandb.run is inner and inner.disabled
    assert sent == [] and wandb.run is run and wandb.log == log and run.url == url and len(notes) == 1
    run.log({"loss": 1.0})
    assert sent == ["log"]


def test_mlflow_opens_no_run_and_gets_nothing(mlflow: Any, sent: list[str]) -> None:
    client = sys.modules["mlflow.tracking.client"].MlflowClient()
    kept = mlflow.log_metric
    notes: list[str] = []
    with unlogged(notes):
        with mlflow.start_run() as run:
            assert run.info.run_id is not None and mlflow.active_run() is not None
            mlflow.log_metric("loss", 1.0)
            kept("loss", 1.0)
            client.log_metric("1", "loss", 1.0)
        mlflow.end_run()
    assert sent == [] and notes == ["mlflow: the trial logged nothing there."]
    assert mlflow.active_run() is None and open_runs() == ()
    mlflow.start_run()
    assert open_runs() == ("mlflow.active_run() (SimpleNamespace)",)


def test_without_either_there_is_no_word_and_the_users_own_mode_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    notes: list[str] = []
    with unlogged(notes):
        assert os.environ["WANDB_MODE"] == "disabled"
    assert os.environ["WANDB_MODE"] == "offline" and notes == [] and open_runs() == ()

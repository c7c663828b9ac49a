"""What a trial reports to experiment trackers: nothing, by the table, with stand-ins of the trackers' shape."""

from __future__ import annotations

import copy
import fnmatch
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.capture import patching
from gpu_doctor.trials.side_effects import tracker_table
from gpu_doctor.trials.side_effects.inert import NOTHING
from gpu_doctor.trials.side_effects.tracker_table import TRACKERS, Part, Tracker
from gpu_doctor.trials.side_effects.trackers import open_runs, reporter_of, unlogged

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


def names_of(patterns: str) -> list[str]:
    """Names of functions that such patterns mean: `log_x` for `log_*`."""
    return ["log" if one == tracker_table.PUBLIC else one.replace("*", "x") for one in patterns.split()]


class World:
    """Modules of one tracker's shape; `sent` has what their functions were called for."""

    def __init__(self, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        self.functions: dict[str, Any] = {}
        """Part's place and name -> a way to call it, of functions and of methods of an object made before."""
        self.classes: dict[str, Any] = {}
        for part in sorted(tracker.parts, key=lambda one: ":" not in one.place):
            module_name, _, cls_name = part.place.partition(":")
            for number in range(module_name.count(".") + 1):
                name = ".".join(module_name.split(".")[: number + 1])
                if not isinstance(sys.modules.get(name), ModuleType) or name in ("torch", "torch.utils"):
                    continue
                if name in tracker.packages and not getattr(sys.modules[name], "stand_in", False):
                    monkeypatch.delitem(sys.modules, name)
            module = sys.modules.get(module_name)
            if module is None or not getattr(module, "stand_in", False):
                module = ModuleType(module_name)
                module.stand_in = True  # type: ignore[attr-defined]
                monkeypatch.setitem(sys.modules, module_name, module)
            held = [one for one in names_of(f"{part.holds} {part.begins}") if not self._kept(one, part)]
            functions = {name: self._function(part.place, name) for name in held}
            if not cls_name:
                vars(module).update(functions)
                self.functions.update({f"{part.place}.{name}": made for name, made in functions.items()})
                continue
            space = {**functions, "__module__": module_name, "__init__": self._function(part.place, "__init__")}
            self.classes[part.place] = cls = type(cls_name, (), space)
            setattr(module, cls_name, cls)
            made = cls()
            self.functions.update({f"{part.place}.{name}": getattr(made, name) for name in functions})
        self.sent.clear()

    @staticmethod
    def _kept(name: str, part: Part) -> bool:
        return any(fnmatch.fnmatchcase(name, one) for one in part.keeps.split())

    def _function(self, place: str, name: str) -> Any:
        def function(*args: Any, **named: Any) -> None:
            self.sent.append(f"{place}.{name}")

        function.__qualname__ = f"{place}.{name}"
        return function


@pytest.mark.parametrize("tracker", [one for one in TRACKERS if one.packages[0] in tracker_table.PACKAGES])
def test_every_function_of_the_table_is_held_back_and_comes_back(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tracker, monkeypatch)
    notes: list[str] = []
    with unlogged(notes):
        for call in world.functions.values():
            call()
        made = [world.classes[part.place]() for part in tracker.parts if part.makes]
        for one in made:
            one.anything.at_all("x", [1])["y"] = 2
    assert world.sent == [] and notes == [f"{tracker.name}: the trial logged nothing there."]
    assert patching.active() == ()
    for call in world.functions.values():
        call()
    assert len(world.sent) == len(world.functions)
    for one in made:
        one.log("after the trial")
    assert len(world.sent) == len(world.functions), "what a trial made reports nothing for good"


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

        @property
        def name(self) -> str:
            return "of the run"

        @name.setter
        def name(self, name: str) -> None:
            sent.append("name")

    def init(project: str = "", *, config: Any = None, mode: str = "online") -> Run:
        sent.append("init")
        run = Run(config)
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
        run.name = "other"
        wandb.config._items["other"] = 1
        wandb.finish()
        inner = taken(config={"lr": 0.5, "depth": 3})
        inner.log({"loss": 1.0})
        assert wandb.config.lr == 0.5 and inner.config["depth"] == 3 and wandb.run is inner
        assert isinstance(inner, type(run)) and f"{inner.name}{inner.id + '.pt'}" == "trialtrial.pt"
    assert sent == [] and wandb.run is run and wandb.log == log
    assert run.name == "of the run" and run.config._items == {"lr": 0.1}
    run.log({"loss": 1.0})
    inner.log({"loss": 1.0})
    assert sent == ["log"]


def test_without_any_there_is_no_word_and_the_users_own_mode_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    notes: list[str] = []
    before = list(sys.meta_path)
    with unlogged(notes):
        assert os.environ["WANDB_MODE"] == "disabled"
    assert os.environ["WANDB_MODE"] == "offline" and notes == [] and open_runs() == ()
    assert sys.meta_path == before


def test_a_tracker_that_the_trial_loads_first_is_met_as_it_arrives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "trackio").mkdir()
    (tmp_path / "trackio" / "__init__.py").write_text(
        "sent = []\nfrom .run import Run\n"
        "def init(project):\n    sent.append('init')\n    return Run()\n"
        "def log(values):\n    sent.append('log')\n"
    )
    (tmp_path / "trackio" / "run.py").write_text("class Run:\n    def log(self, values):\n        1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("trackio", "trackio.run"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    notes: list[str] = []
    with unlogged(notes):
        trackio: Any = __import__("trackio")
        trackio.init("mine").log({"loss": 1.0})
        trackio.log({"loss": 1.0})
    assert trackio.sent == [] and notes == ["trackio: the trial logged nothing there."]
    assert "exec_module" not in vars(trackio.__spec__.loader)
    trackio.log({})
    assert trackio.sent == ["log"]
    for name in ("trackio", "trackio.run"):
        sys.modules.pop(name)


class Held:
    """A writer of a tracker's, and one of the user's that derives from it."""

    class Writer:
        def __init__(self, log_dir: str) -> None:
            raise AssertionError("it would write")

        def add(self, value: float) -> None:
            raise AssertionError("it would write")

        def get_logdir(self) -> str:
            return self.log_dir  # type: ignore[attr-defined,no-any-return]

    class Mine(Writer):
        kind = "mine"

        def __init__(self) -> None:
            super().__init__("runs")
            self.calls = 0

        def twice(self, value: float) -> float:
            self.calls += 1
            self.add(value)
            return 2 * value


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> type[Held]:
    Held.Writer.__module__ = "tensorboardX.writer"
    module: Any = ModuleType("tensorboardX.writer")
    module.SummaryWriter = Held.Writer
    monkeypatch.setitem(sys.modules, "tensorboardX.writer", module)
    return Held


def test_a_writer_of_the_users_own_keeps_its_methods(writers: type[Held], tmp_path: Path) -> None:
    with unlogged([]):
        mine, plain = writers.Mine(), writers.Writer(str(tmp_path))
        assert mine.twice(2.0) == 4.0 and mine.calls == 1 and mine.kind == "mine"
        assert isinstance(mine, writers.Writer) and reporter_of(plain) == "TensorBoard"
        assert plain.get_logdir() == str(tmp_path)
        folder = mine.get_logdir()
        assert Path(folder).is_dir() and mine.get_logdir() == folder
        assert copy.deepcopy(plain) is plain
    assert not Path(folder).exists()
    mine.add(1.0)


def test_what_stands_for_nothing_takes_whatever_loops_do_with_it() -> None:
    with NOTHING as one:
        assert one is NOTHING
    NOTHING.a["b"].c(1, d=2)
    one += 1
    assert one is NOTHING and list(NOTHING) == [] and f"{NOTHING.run.id}" == str(NOTHING) == "trial"
    assert "runs/" + NOTHING.id == "runs/trial" and int(NOTHING.step) + 1 == 1 and not NOTHING < 3
    assert bool(NOTHING) and "x" not in NOTHING

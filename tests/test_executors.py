"""Executors: trials in the kernel, what of a notebook has to travel to another machine, and how it arrives there."""

from __future__ import annotations

import importlib
import random
import sqlite3
import sys
import types
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.effect import Effect
from gpu_doctor.executors import Executor, InKernel
from gpu_doctor.executors.luggage import Parcel, Unpackable, pack, unpack
from gpu_doctor.executors.posted import as_bytes, of_bytes
from gpu_doctor.executors.reach import reached
from gpu_doctor.executors.remote import acting_as_main, one_round
from tests.recordings import Loop, on_gpu

cloudpickle = pytest.importorskip("cloudpickle")

LOOP = """
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


def namespace(**more: Any) -> dict[str, Any]:
    model = nn.Linear(4, 2)
    loader = DataLoader(TensorDataset(torch.randn(400, 4), torch.zeros(400, dtype=torch.long)), 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {"__name__": "__main__", "nn": nn, "model": model, "optimizer": optimizer, "loader": loader, **more}


def travelled(code: Any, space: dict[str, Any]) -> Parcel:
    """What arrives elsewhere of a case."""
    return unpack(pack(gpu_doctor.case(code, space), cloudpickle.CloudPickler))


# ---- in the kernel --------------------------------------------------------------------------------------------------


def test_in_the_kernel_trials_run_one_after_another() -> None:
    case = gpu_doctor.case(LOOP, namespace())
    executor: Executor = InKernel()
    found = executor.trials(case, [{"batch_size": 8}, {"batch_size": 16}], steps=5, seconds=5, against={})
    assert executor.width == 1
    assert [dict(one.settings) for one in found] == [{"batch_size": 8}, {"batch_size": 16}]
    assert case.effects == found and len(case.trials) == 2


def test_after_a_stop_no_further_trial_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    tried: list[Any] = []

    def stopping(settings: Any, **given: Any) -> Effect:
        tried.append(settings)
        case.stopped = True
        case.effects.append(Effect(settings, outcome="stopped"))
        return case.effects[-1]

    monkeypatch.setattr(case, "trial", stopping)
    found = InKernel().trials(case, [{"batch_size": 8}, {"batch_size": 16}], steps=5, seconds=5, against={})
    assert [one.outcome for one in found] == ["stopped", "stopped"]
    assert len(tried) == 1 and len(case.effects) == 2


def test_treat_hands_its_trials_to_the_executor() -> None:
    space = namespace(loader=DataLoader(Sleeping(), batch_size=8))
    handed: list[Any] = []

    class Counting(InKernel):
        def trials(self, case: Any, candidates: Any, **given: Any) -> list[Effect]:
            handed.extend(candidates)
            return super().trials(case, candidates, **given)

    plan = gpu_doctor.case(LOOP, space).treat(max_trials=1, steps=10, seconds=10, executor=Counting())
    assert handed == [dict(effect.settings) for effect in plan.effects] != []


class Sleeping(TensorDataset):
    def __init__(self) -> None:
        super().__init__(torch.randn(4000, 4), torch.zeros(4000, dtype=torch.long))

    def __getitem__(self, index: int) -> Any:
        import time

        time.sleep(2e-3)
        return super().__getitem__(index)


# ---- which names a cell reaches -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "needed", "perhaps"),
    [
        ("for x in loader:\n    loss = model(x)\n    print(loss)", "loader model print", ""),
        ("conn = connect()\nconn.read()", "connect", ""),
        ("n += 1", "n", ""),
        ("total = total + 1", "total", ""),
        ("if first:\n    conn = 1\nconn.read()", "first conn", ""),
        ("conn = 1\ndef f():\n    return conn, data", "data", ""),
        ("def f():\n    return conn\nconn = 1", "", "conn"),
        ("def f(a, b=default):\n    c = a\n    return c", "default", ""),
        ("xs = [x * scale for x in rows if x]", "rows scale", ""),
        ("with open(path) as file:\n    text = file.read()\nprint(text)", "open path print", ""),
        ("import torch.nn as nn\nfrom a import b\nnn.Linear(b)", "", ""),
        (
            "class Net(Base, metaclass=Meta):\n    size = width\n    def f(self): return depth",
            "Base Meta width depth",
            "",
        ),
        ("try:\n    a = read()\nexcept OSError as error:\n    print(error)\na", "read OSError print a", ""),
        ("def f():\n    global counter\n    counter += 1", "", "counter"),
        ("del old", "old", ""),
        ("f = lambda x: model(x)\nd['k'] = v\no.a: int = w", "model d v o w int", ""),
    ],
)
def test_what_a_cell_reads_before_it_makes_it(source: str, needed: str, perhaps: str) -> None:
    found = reached(source)
    assert found.needed == set(needed.split())
    assert found.perhaps == set(perhaps.split())


# ---- what travels ---------------------------------------------------------------------------------------------------


def test_only_what_the_cell_reaches_travels() -> None:
    conn = sqlite3.connect(":memory:")
    try:
        arrived = travelled(LOOP, namespace(conn=conn, huge=[0] * 10))
    finally:
        conn.close()
    assert set(arrived.namespace) - {"__builtins__"} == {"__name__", "loader", "model", "nn", "optimizer"}


def test_functions_of_earlier_cells_read_what_the_cell_binds_there_too() -> None:
    space = namespace()
    exec("class Net(nn.Linear):\n    def forward(self, x): return super().forward(x) * scale", space)
    exec("def epoch():\n    return model(torch.ones(1, 4)).sum().item()", space | {"torch": torch})
    space.update(torch=torch, scale=2.0, result=None)
    exec("def epoch():\n    return model(torch.ones(1, 4)).sum().item()\nmodel = Net(4, 2)", space)
    arrived = travelled("scale = scale + 1\nresult = epoch()", space)
    assert arrived.namespace is not space and arrived.namespace["epoch"].__globals__ is arrived.namespace
    expected = space["model"](torch.ones(1, 4)).sum().item() / 2.0 * 3.0
    exec(arrived.code, arrived.namespace)
    assert arrived.namespace["result"] == pytest.approx(expected)
    assert space["scale"] == 2.0 and space["result"] is None


def test_tied_weights_and_shared_memory_arrive_tied_and_the_optimizer_still_holds_them() -> None:
    space = namespace()
    data = torch.arange(10.0)
    space.update(whole=data, half=data[:5], head=space["model"].weight)
    arrived = travelled("whole, half, head, model, optimizer", space).namespace
    arrived["whole"][0] = 7.0
    assert arrived["half"][0] == 7.0 and data[0] == 0.0
    assert arrived["head"] is arrived["model"].weight
    assert arrived["optimizer"].param_groups[0]["params"][0] is arrived["model"].weight


def test_a_loader_whose_workers_run_travels_without_them() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(8, 4)), 4, num_workers=1, persistent_workers=True)
    next(iter(loader))
    before = loader._iterator
    arrived = travelled("loader", namespace(loader=loader)).namespace["loader"]
    assert arrived._iterator is None and arrived.num_workers == 1
    assert loader._iterator is before is not None
    before._shutdown_workers()
    loader._iterator = None


def test_the_random_numbers_travel() -> None:
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    arrived = travelled("1 + 1", namespace())
    here = (torch.rand(2).tolist(), random.random(), np.random.rand())
    torch.rand(3), random.random(), np.random.rand()
    arrived.enter()
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == here


def test_a_function_is_code_too() -> None:
    def train() -> int:
        return len(space["loader"])

    space = namespace()
    arrived = travelled(train, space)
    assert callable(arrived.code) and arrived.code() == 100


class Rows:
    def __init__(self, conn: Any) -> None:
        self.conn = conn


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("conn.execute('')", "`conn` (sqlite3.Connection) cannot be sent to another machine: make it inside the cell."),
        ("rows", f"`rows` ({__name__}.Rows: cannot pickle 'sqlite3.Connection' object) cannot be sent"),
        ("load()", "`conn` (sqlite3.Connection) cannot be sent to another machine: make it inside the cell."),
        (
            "lines, conn",
            "`conn` (sqlite3.Connection) and `lines` (generator) cannot be sent to another machine: make them",
        ),
        ("%time 1 + 1", "The cell is no plain Python"),
        ("await f()", "The cell is no plain Python"),
    ],
)
def test_what_cannot_travel_is_named_in_one_sentence(cell: str, said: str) -> None:
    conn = sqlite3.connect(":memory:")
    space = namespace(conn=conn, rows=Rows(conn), lines=(line for line in "ab"))
    exec("def load(): return conn", space)
    case = gpu_doctor.case("pass", space)
    case.source = cell
    try:
        with pytest.raises(Unpackable) as refused:
            pack(case, cloudpickle.CloudPickler)
    finally:
        conn.close()
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)


def test_what_the_cell_makes_itself_need_not_travel() -> None:
    conn = sqlite3.connect(":memory:")  # as left by the last run of the cell
    space = namespace(conn=conn, sqlite3=sqlite3, number=None)
    exec("def load(): return conn.execute('select 3').fetchone()[0]", space)
    cell = "conn = sqlite3.connect(':memory:')\nnumber = load()"
    try:
        arrived = travelled(cell, space)
    finally:
        conn.close()
    exec(arrived.code, arrived.namespace)
    assert arrived.namespace["number"] == 3
    arrived.namespace["conn"].close()


def test_the_magics_line_stays_as_an_empty_one() -> None:
    case = gpu_doctor.case("pass", namespace())
    case.source = "%%gpudoctor --steps 5\nmodel"
    assert unpack(pack(case, cloudpickle.CloudPickler)).code == "\nmodel"


# ---- what runs elsewhere, run here ----------------------------------------------------------------------------------


def test_a_round_gives_recordings_of_both_sides_and_touches_nothing_here() -> None:
    space = namespace()
    case = gpu_doctor.case(LOOP, space)
    case.run(steps=5)
    weight, main = space["model"].weight.clone(), sys.modules["__main__"]
    back = one_round(pack(case, cloudpickle.CloudPickler), "a", {}, {"batch_size": 8}, 6, 10.0)
    bases, candidates = [of_bytes(one) for one in back["bases"]], [of_bytes(one) for one in back["candidates"]]
    assert [len(one.steps) for one in (*bases, *candidates)] == [6, 6]
    assert [one.steps.samples[0] for one in (*bases, *candidates)] == [4, 8]
    assert bases[0].losses.value[0] != 0
    assert torch.equal(weight, space["model"].weight) and sys.modules["__main__"] is main


def test_luggage_that_cannot_be_unpacked_there_is_a_failure_in_words() -> None:
    assert one_round(b"nothing", "b", {}, {}, 5, 5.0)["failure"].startswith(
        "what the cell needs could not be made again"
    )


def test_a_recording_survives_the_journey() -> None:
    sent = Loop(steps=20, wait=5.0, settings={"num_workers": 2}).recording()
    arrived = of_bytes(as_bytes(sent))
    assert arrived.settings == sent.settings and np.array_equal(arrived.steps.wall_s, sent.steps.wall_s)


def test_the_notebook_is_main_while_its_round_runs() -> None:
    before = sys.modules["__main__"]
    with acting_as_main({"__name__": "__main__", "Rows": Rows}):
        import __main__ as notebook

        assert notebook.Rows is Rows
        with pytest.raises(AttributeError, match="no attribute 'Columns'"):
            notebook.Columns  # noqa: B018
    assert sys.modules["__main__"] is before
    with acting_as_main({"__name__": "my_module"}):
        assert sys.modules["__main__"] is before


# ---- what a task asks the cluster for ------------------------------------------------------------------------------


class Cluster:
    """Ray as far as a request goes: its machines, and the options that a task was given."""

    class cloudpickle:
        CloudPickler = getattr(cloudpickle, "CloudPickler", None)

    def __init__(self, **machine: float) -> None:
        self.machine, self.options = machine, []  # type: ignore[var-annotated]

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.machine}, {"Alive": False, "Resources": {"CPU": 99, "GPU": 99}}]

    def put(self, luggage: bytes) -> bytes:
        return luggage

    def remote(self, function: Any) -> Any:
        return types.SimpleNamespace(options=lambda **given: self.options.append(given))


class Sent:
    """In the place of the rounds: nothing is sent."""

    rooms: list[int] = []  # noqa: RUF012

    def __init__(self, *given: Any) -> None: ...

    def run(self, case: Any, entries: Any, room: int, racing: bool) -> None:
        Sent.rooms.append(room)


def asked_of(cluster: Cluster, recording: Any, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Effect:
    """Has a trial of a loop that was recorded sent to a cluster."""
    executing = importlib.import_module("gpu_doctor.executors.ray")
    monkeypatch.setattr(executing, "import_module", lambda name: cluster)
    monkeypatch.setattr(executing, "RoundsOut", Sent)
    Sent.rooms.clear()
    case = gpu_doctor.case("for x, y in loader: pass", {})
    case.recordings.append(recording)
    [effect] = executing.RayExecutor(**given).trials(case, [{"num_workers": 2}], steps=5, seconds=5.0, against={})
    return cast(Effect, effect)


@pytest.mark.parametrize(
    ("gpu", "given", "wanted", "room"),
    [
        (False, {}, {"num_cpus": 1, "num_gpus": 0}, 8),
        (True, {}, {"num_cpus": 1, "num_gpus": 1}, 2),
        (True, {"num_cpus": 3}, {"num_cpus": 3, "num_gpus": 1}, 2),
        (True, {"num_gpus": 0.5}, {"num_cpus": 1, "num_gpus": 0.5}, 4),
        (False, {"num_gpus": 2}, {"num_cpus": 1, "num_gpus": 2}, 1),
        (True, {"options": {"num_gpus": 2, "max_retries": 1}}, {"num_cpus": 1, "num_gpus": 2, "max_retries": 1}, 1),
        (True, {"options": {"resources": {"a100": 1}}}, {"num_gpus": 1, "resources": {"a100": 1}}, 1),
    ],
)
def test_a_task_asks_for_the_gpus_that_its_loop_trains_on(
    gpu: bool, given: dict[str, Any], wanted: dict[str, Any], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(CPU=8, GPU=2, a100=1)
    asked_of(cluster, (on_gpu() if gpu else Loop()).recording(), monkeypatch, **given)
    [options] = cluster.options
    assert {"max_retries": 0, "name": "gpu_doctor", **wanted}.items() <= options.items()
    assert Sent.rooms == [room], "as many at once as the living machines have room for"


def test_a_gpu_that_no_machine_has_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(CPU=8)
    effect = asked_of(cluster, on_gpu().recording(), monkeypatch)
    assert effect.outcome == "refused" and cluster.options == [] and Sent.rooms == []
    assert effect.reason.startswith("No machine of the cluster has 1 CPU, 1 GPU for a trial: ask for less")

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
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.machine.host import usable_cores
from gpu_doctor.recording import DeviceSetup
from gpu_doctor.trials.cell_reads import reached
from gpu_doctor.trials.compare.effect import Effect
from gpu_doctor.trials.executors import InKernel
from gpu_doctor.trials.executors.parcel import Parcel, Unpackable, as_bytes, of_bytes, pack, unpack
from gpu_doctor.trials.executors.remote import acting_as_main, one_round
from gpu_doctor.trials.executors.resources import Request
from gpu_doctor.trials.runner import Runner
from tests.support.recordings import Loop, on_gpu
from tests.support.small_loop import LOOP, namespace

cloudpickle = pytest.importorskip("cloudpickle")


def travelled(code: Any, space: dict[str, Any]) -> Parcel:
    """What arrives elsewhere of a case."""
    return unpack(pack(gpu_doctor.case(code, space), cloudpickle.CloudPickler))


def test_after_a_stop_no_further_trial_begins() -> None:
    case, began = gpu_doctor.case(LOOP, namespace()), list[str]()

    def stopping(recorder: Any, role: str) -> None:
        began.append(role)
        case.stop()

    case.on_begin = stopping
    found = InKernel().trials(case, [{"batch_size": 8}, {"batch_size": 16}], steps=5, seconds=5, against={})
    assert [one.outcome for one in found] == ["stopped", "stopped"]
    assert began == ["baseline"] and len(case.effects) == 2


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
    exec(arrived.code, arrived.namespace)  # type: ignore[arg-type]
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
    before._shutdown_workers()  # type: ignore[attr-defined]
    loader._iterator = None


def test_the_random_numbers_travel() -> None:
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    arrived = travelled("1 + 1", namespace())
    here = (torch.rand(2).tolist(), random.random(), np.random.rand())
    torch.rand(3), random.random(), np.random.rand()
    arrived.enter()
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == here


def test_a_switch_that_the_torch_here_lacks_stays_there_as_it_is() -> None:
    arrived = travelled("1 + 1", namespace())
    del arrived.process["switches"]["torch's matmul precision"]
    before = torch.get_float32_matmul_precision()
    arrived.enter()
    assert torch.get_float32_matmul_precision() == before


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
        ("conn.execute('')", "`conn` (sqlite3.Connection) cannot be sent"),
        ("rows", f"`rows` ({__name__}.Rows: cannot pickle 'sqlite3.Connection' object) cannot be sent"),
        ("load()", "`conn` (sqlite3.Connection) cannot be sent"),
        (
            "lines, conn",
            "`conn` (sqlite3.Connection) and `lines` (generator) cannot be",
        ),
        ("%time 1 + 1", "A cluster runs plain Python only"),
        ("await f()", "A cluster runs plain Python only"),
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
    exec(arrived.code, arrived.namespace)  # type: ignore[arg-type]
    assert arrived.namespace["number"] == 3
    arrived.namespace["conn"].close()


def test_the_magics_line_stays_as_an_empty_one() -> None:
    case = gpu_doctor.case("pass", namespace())
    case.source = "%%gpudoctor --steps 5\nmodel"
    assert unpack(pack(case, cloudpickle.CloudPickler)).code == "\nmodel"


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


def test_torch_computes_there_on_as_many_threads_as_here_and_no_more_than_were_asked_for() -> None:
    """Ray gives a process as many as the first task that it ran asked for cores, whatever the next one asks for."""
    case, before = gpu_doctor.case(LOOP, namespace()), torch.get_num_threads()
    try:
        for here, asked, there in ((2, None, 2), (2, 1, 1), (1, None, 1), (2, 0.5, 1), (64, None, int(usable_cores()))):
            torch.set_num_threads(here)
            parcel = unpack(pack(case, cloudpickle.CloudPickler, asked))
            torch.set_num_threads(3)
            parcel.enter()
            assert torch.get_num_threads() == min(there, int(usable_cores()))
    finally:
        torch.set_num_threads(before)


def test_luggage_that_cannot_be_unpacked_there_is_a_failure_in_words() -> None:
    assert one_round(b"nothing", "b", {}, {}, 5, 5.0)["failure"].startswith("the variables of the cell could not be")


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

    parts: list[float] = []  # noqa: RUF012
    pairs = 0

    def __init__(self, ray: Any, places: dict[int, tuple[Any, float]], *given: Any) -> None:
        Sent.parts, Sent.pairs = [part for _, part in places.values()], given[-1]

    def run(self, case: Any, entries: Any) -> None: ...


def executor_on(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Any:
    """An executor of such a cluster, which has four threads at home."""
    executing = importlib.import_module("gpu_doctor.trials.executors.ray")
    monkeypatch.setattr(executing, "import_module", lambda name: cluster)
    monkeypatch.setattr(executing, "RoundsOut", Sent)
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    Sent.parts = []
    return executing.RayExecutor(**given)


def asked_of(
    cluster: Cluster, recording: Any, monkeypatch: pytest.MonkeyPatch, settings: Any = None, **given: Any
) -> Effect:
    """Has a trial of a loop that was recorded sent to a cluster."""
    executor = executor_on(cluster, monkeypatch, **given)
    case = gpu_doctor.case("for x, y in loader: pass", {})
    case.recordings.append(recording)
    [effect] = executor.trials(case, [settings or {"num_workers": 2}], steps=5, seconds=5.0, against={}, pairs=3)
    return cast(Effect, effect)


@pytest.mark.parametrize(
    ("gpu", "given", "wanted", "room"),
    [
        (False, {}, {"num_cpus": 6, "num_gpus": 0}, 2),
        (True, {}, {"num_cpus": 5, "num_gpus": 1}, 2),  # it has four workers as written
        (True, {"num_cpus": 6}, {"num_cpus": 6, "num_gpus": 1}, 2),
        (True, {"num_gpus": 0.5, "num_cpus": 1}, {"num_cpus": 1, "num_gpus": 0.5}, 4),
        (False, {"num_gpus": 2}, {"num_cpus": 3, "num_gpus": 2}, 1),
        (True, {"options": {"num_gpus": 2, "max_retries": 1}}, {"num_cpus": 5, "num_gpus": 2, "max_retries": 1}, 1),
        (True, {"options": {"resources": {"a100": 1}}}, {"num_gpus": 1, "resources": {"a100": 1}}, 1),
        (True, {"width": 7}, {"num_cpus": 5, "num_gpus": 1}, 7),
    ],
)
def test_a_task_asks_for_its_loops_and_its_workers_cores_and_for_the_gpus_that_it_trains_on(
    gpu: bool, given: dict[str, Any], wanted: dict[str, Any], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(CPU=12, GPU=2, a100=1)
    asked_of(cluster, (on_gpu() if gpu else Loop()).recording(), monkeypatch, **given)
    [options] = cluster.options
    assert {"max_retries": 0, "name": "gpu_doctor", **wanted}.items() <= options.items()
    assert Sent.parts == [1 / room], "as many at once as the living machines have room for"
    assert Sent.pairs == 3


@pytest.mark.parametrize(
    ("settings", "loop", "cpus"),
    [
        ({"num_workers": 2}, Loop(), 6),
        ({"num_workers": 0}, Loop(workers=3), 7),  # its baseline has three
        ({"batch_size": 64}, Loop(workers=3), 7),
        ({"num_workers": 1, "threads": 2}, Loop(), 4),  # as the baseline, with four threads and no worker
        ({"num_workers": 64}, Loop(), 12),  # more than any machine has would wait for ever
    ],
)
def test_the_more_costly_side_tells_the_cores_and_the_largest_machine_the_most(
    settings: dict[str, Any], loop: Loop, cpus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(CPU=12)
    asked_of(cluster, loop.recording(), monkeypatch, settings)
    assert [one["num_cpus"] for one in cluster.options] == [cpus]


def test_the_largest_machine_is_one_that_has_the_rest_of_what_is_asked_for() -> None:
    machines = [{"CPU": 64.0}, {"CPU": 8.0, "GPU": 2.0}]
    assert Request(20, 1).within(machines) == Request(8, 1)
    assert Request(20, 0).within(machines) == Request(20, 0)
    assert Request(8, 1).room(machines) == 1 and Request(2, 0).room(machines) == 36
    assert Request(20, 4).within(machines) == Request(20, 4), "nowhere: it is refused as it was asked for"
    assert Request(2, 1).within([{"CPU": 0.0, "GPU": 1.0}]) == Request(2, 1)


def test_how_many_run_at_once_is_told_by_what_a_case_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = executor_on(Cluster(CPU=12), monkeypatch)
    assert executor.width == 3


def test_a_gpu_that_no_machine_has_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(CPU=8)
    effect = asked_of(cluster, on_gpu().recording(), monkeypatch)
    assert effect.outcome == "refused" and cluster.options == [] and Sent.parts == []
    assert effect.reason.startswith("No machine of the cluster has 5 CPUs, 1 GPU")


def test_what_a_gpu_is_needed_for_is_refused_here_only_where_the_trial_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop trained on this machine's CPU: a task with a GPU has a baseline of its own, which decides."""
    cluster = Cluster(CPU=8, GPU=1)
    effect = asked_of(cluster, Loop().recording(), monkeypatch, {"pin_memory": True})
    assert effect.outcome == "refused" and effect.reason.startswith("No GPU:") and not cluster.options
    asked_of(cluster, Loop().recording(), monkeypatch, {"pin_memory": True}, num_gpus=1)
    assert [one["num_gpus"] for one in cluster.options] == [1] and Sent.parts == [1.0]
    effect = asked_of(cluster, Loop().recording(), monkeypatch, {"pin_memory": "perhaps"}, num_gpus=1)
    assert effect.outcome == "refused", "what is no value of the knob's needs no cluster to say so"


def test_there_the_baseline_tells_what_can_be_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.run(steps=5)
    sent = pack(case, cloudpickle.CloudPickler)
    assert unpack(sent).known_run is not None
    found: list[Any] = []
    once = Runner.once

    def watched(self: Runner, *given: Any) -> Any:
        found.append((dict(given[0]), self.found is not None and self.found.usable_cores))
        return once(self, *given)

    monkeypatch.setattr(Runner, "once", watched)
    card = DeviceSetup(0, "NVIDIA H100")
    monkeypatch.setattr("gpu_doctor.trials.executors.parcel.cuda_devices", lambda: (card,))
    assert unpack(sent).known_run is None, "a run on a CPU tells nothing of one on a GPU"
    for _ in range(2):  # the second round finds a process that is warm
        back = one_round(sent, "there", {"batch_size": 8}, {"pin_memory": True}, 4, 5.0)
        assert of_bytes(back["candidates"][0]).outcome == "refused"
    assert [settings for settings, _ in found] == [{}, *[{"batch_size": 8}, {"pin_memory": True}] * 2]
    assert not found[0][1] and all(cores for _, cores in found[1:]), "as it was found there"

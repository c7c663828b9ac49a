"""Executors: trials in the kernel, what of a notebook has to travel to another machine, and how it arrives there."""

from __future__ import annotations

import base64
import importlib.util
import random
import sqlite3
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import gpu_doctor
from gpu_doctor.machine.host import usable_cores
from gpu_doctor.recording import DeviceSetup
from gpu_doctor.trials.cell_reads import reached
from gpu_doctor.trials.executors import RayExecutor
from gpu_doctor.trials.executors.parcel import Parcel, Unpackable, as_bytes, of_bytes, pack, unpack, versions
from gpu_doctor.trials.executors.ray import Unreachable
from gpu_doctor.trials.runner import Runner
from gpu_doctor.trials.searches import NEEDED
from tests.support.recordings import Loop, on_gpu
from tests.support.small_loop import LOOP, namespace

cloudpickle = pytest.importorskip("cloudpickle")
remote = pytest.importorskip("gpu_doctor.trials.executors.remote", exc_type=ImportError)


def packed(case: gpu_doctor.Case) -> dict[str, Any]:
    return pack(case, cloudpickle.CloudPickler)


def travelled(code: Any, space: dict[str, Any]) -> Parcel:
    """What arrives elsewhere of a case."""
    return unpack(packed(gpu_doctor.case(code, space)))


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


def pairs_of(sent: Any, settings: dict[str, Any], steps: int = 6) -> Any:
    """A combination of a sweep in this process, as Ray Tune makes it elsewhere."""

    class Here(remote.Pairs):  # type: ignore[misc,name-defined]
        def setup(self, config: dict[str, Any]) -> None:
            super().setup(config, sent=sent)

    return Here({"combination": {"number": 0, "settings": settings}, "steps": steps, "seconds": 10.0})


def unpacked(files: list[str]) -> list[Any]:
    return [of_bytes(base64.b64decode(one)) for one in files]


def test_a_pair_gives_recordings_of_both_sides_and_touches_nothing_here() -> None:
    space = namespace()
    case = gpu_doctor.case(LOOP, space)
    case.run(steps=5)
    weight, main = space["model"].weight.clone(), sys.modules["__main__"]
    pairs = pairs_of(packed(case), {"batch_size": 8})
    back = pairs.step()
    bases, candidates = unpacked(back["bases"]), unpacked(back["candidates"])
    assert [len(one.steps) for one in (*bases, *candidates)] == [6, 6]
    assert [one.steps.samples[0] for one in (*bases, *candidates)] == [4, 8]
    assert bases[0].losses.value[0] != 0 and back[remote.METRIC] > 0
    pairs.cleanup()
    assert torch.equal(weight, space["model"].weight) and sys.modules["__main__"] is main


def test_the_next_combination_of_a_process_begins_from_the_same_state() -> None:
    pairs = pairs_of(packed(gpu_doctor.case(LOOP, namespace())), {"batch_size": 8})
    first = unpacked(pairs.step()["candidates"])[0]
    assert pairs.reset_config({"combination": {"settings": {"batch_size": 8}}, "steps": 6, "seconds": 10.0})
    second = unpacked(pairs.step()["candidates"])[0]
    assert np.array_equal(first.losses.value, second.losses.value)
    pairs.cleanup()


def test_torch_computes_there_on_as_many_threads_as_here_and_no_more_than_were_requested() -> None:
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


def test_what_cannot_be_unpacked_there_is_a_failure_in_words() -> None:
    answer = pairs_of({"versions": versions(), "contents": b"nothing"}, {}).step()
    assert answer["done"] and "could not be rebuilt on" in answer["failure"]


def test_another_torch_there_is_a_refusal_that_names_both() -> None:
    answer = pairs_of({"versions": {**versions(), "torch": "1.13.1"}, "contents": b"not read"}, {}).step()
    assert answer["done"] and "torch 1.13.1" in answer["refusal"]
    assert f"torch {versions()['torch']}" in answer["refusal"] and "Python" not in answer["refusal"]


def test_a_recording_survives_the_journey() -> None:
    sent = Loop(steps=20, wait=5.0, settings={"num_workers": 2}).recording()
    arrived = of_bytes(as_bytes(sent))
    assert arrived.settings == sent.settings and np.array_equal(arrived.steps.wall_s, sent.steps.wall_s)


def test_the_notebook_is_main_while_its_round_runs() -> None:
    before = sys.modules["__main__"]
    with remote.acting_as_main({"__name__": "__main__", "Rows": Rows}):
        import __main__ as notebook

        assert notebook.Rows is Rows
        with pytest.raises(AttributeError, match="no attribute 'Columns'"):
            notebook.Columns  # noqa: B018
    assert sys.modules["__main__"] is before
    with remote.acting_as_main({"__name__": "my_module"}):
        assert sys.modules["__main__"] is before


def asked_of(loop: Any, machines: Any, settings: Any = None, **given: Any) -> dict[str, float]:
    """What a trial of a loop that was recorded asks of machines, from a kernel with four threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.get_num_threads", lambda: 4)
        return RayExecutor(**given).requested(loop.recording().setup, settings or {"num_workers": 2}, machines)


MACHINES = [{"CPU": 12.0, "GPU": 2.0, "a100": 1.0}]


@pytest.mark.parametrize(
    ("gpu", "given", "wanted"),
    [
        (False, {}, {"CPU": 6}),
        (True, {}, {"CPU": 5, "GPU": 1}),  # it has four workers as written
        (True, {"num_cpus": 6}, {"CPU": 6, "GPU": 1}),
        (True, {"num_gpus": 0.5, "num_cpus": 1}, {"CPU": 1, "GPU": 0.5}),
        (False, {"num_gpus": 2}, {"CPU": 3, "GPU": 2}),
        (True, {"resources": {"a100": 1}}, {"CPU": 5, "GPU": 1, "a100": 1}),
    ],
)
def test_a_trial_requests_cores_for_its_loop_and_workers_and_the_gpus_that_it_trains_on(
    gpu: bool, given: dict[str, Any], wanted: dict[str, float]
) -> None:
    assert asked_of(on_gpu() if gpu else Loop(), MACHINES, **given) == wanted


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
def test_cores_are_those_of_the_more_costly_side_and_at_most_those_of_the_largest_machine(
    settings: dict[str, Any], loop: Loop, cpus: float
) -> None:
    assert asked_of(loop, MACHINES, settings) == {"CPU": cpus}


def test_the_largest_machine_has_the_rest_of_the_request() -> None:
    machines = [{"CPU": 64.0}, {"CPU": 8.0, "GPU": 2.0}]
    assert asked_of(on_gpu(), machines, {"num_workers": 20}) == {"CPU": 8, "GPU": 1}
    assert asked_of(Loop(), machines, {"num_workers": 20}) == {"CPU": 24}


def test_a_gpu_that_no_machine_has_is_refused() -> None:
    with pytest.raises(Unreachable, match="5 CPU, 1 GPU"):
        asked_of(on_gpu(), [{"CPU": 8.0}])


def ray_of(init: Callable[..., None], shutdown: Callable[[], None] = lambda: None) -> SimpleNamespace:
    """A stand-in for the package, which has not been started."""
    return SimpleNamespace(init=init, is_initialized=lambda: False, shutdown=shutdown)


def test_other_versions_of_the_cluster_are_named_in_a_sentence() -> None:
    said = (
        "Version mismatch: The cluster was started with:\n    Ray: 2.50.0\n    Python: 3.10.1\nThis process on node "
        "10.0.0.1 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
    )

    def init(**given: Any) -> None:
        raise RuntimeError(said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", ray_of(init))  # type: ignore[arg-type]
        with pytest.raises(Unreachable) as refused, RayExecutor("auto").connected(lambda: False):
            pass
    reason = str(refused.value)
    assert "Ray 2.50.0 and Python 3.10.1" in reason and "Ray 2.60.0 and Python 3.11.7" in reason and "\n" not in reason


def test_a_stop_interrupts_rays_start() -> None:
    calls: list[str] = []

    def init(**given: Any) -> None:
        calls.append("started")
        threading.Event().wait(60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "ray", ray_of(init, lambda: calls.append("shut down")))  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt), RayExecutor().connected(lambda: bool(calls)):
            pass
    assert calls == ["started", "shut down"]


def test_rays_client_is_refused() -> None:
    with pytest.raises(ValueError, match="ray://"):
        RayExecutor("ray://head:10001")


@pytest.mark.parametrize("missing", NEEDED)
def test_without_ray_tune_one_sentence_says_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(ImportError, match=r"pip install 'jupyter-gpu-doctor\[ray\]'"):
        gpu_doctor.case("x = 1").sweep({"num_workers": [0]})


def test_there_the_baseline_shows_what_can_be_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    case = gpu_doctor.case(LOOP, namespace())
    case.run(steps=5)
    sent = packed(case)
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
    pairs = pairs_of(sent, {"pin_memory": True}, 4)
    for _ in range(2):  # the second combination finds a process that is warm
        assert unpacked(pairs.step()["candidates"])[0].outcome == "refused"
        pairs.reset_config({"combination": {"settings": {"pin_memory": True}}, "steps": 4, "seconds": 5.0})
    pairs.cleanup()
    assert [settings for settings, _ in found] == [{}, *[{}, {"pin_memory": True}] * 2]
    assert not found[0][1] and all(cores for _, cores in found[1:]), "as it was found there"

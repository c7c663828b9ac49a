"""After a trial everything is bit for bit what it was before, in the very same objects."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import importlib
import os
import queue
import random
import sqlite3
import statistics
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gpu_doctor.machine import torch_memory
from gpu_doctor.machine.torch_memory import held_bytes
from gpu_doctor.trials.snapshot.snapshot import Snapshot, room_bytes
from gpu_doctor.trials.snapshot.tensors import SnapshotTooLarge, TensorStore, on_host
from gpu_doctor.trials.snapshot.walk import Walk
from tests.support.cells import CELLS, ended, notebook
from tests.support.everything import Everything
from tests.support.restoring import as_before
from tests.support.simulated_cuda import SimulatedCuda


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a = [1]


@dataclass(frozen=True)
class Frozen:
    values: list[int] = field(default_factory=list)


def run(code: str, space: dict[str, Any]) -> None:
    exec(compile(code, "<cell>", "exec"), space)


def check(space: dict[str, Any], *cells: str) -> Snapshot:
    """Runs the cells, each changing something, and restores after each: A B A B."""
    before = Everything(space)
    snapshot = Snapshot.take(space)
    assert before.differences(Everything(space)) == [], "taking a snapshot changes nothing"
    for cell in cells * 2:
        run(cell, space)
        assert before.digest != Everything(space).digest, f"the cell changes nothing: {cell}"
        assert snapshot.restore() == ()
        assert before.differences(Everything(space)) == [], f"not restored: {cell}"
    return snapshot


LONG = ("files", "metrics of torchmetrics")


@contextlib.contextmanager
def opened(name: str, folder: Path, runs: int) -> Iterator[dict[str, Any]]:
    """A notebook of the catalogue, in which the cell has run so often."""
    variables, before, places = dict(os.environ), Path.cwd(), list(sys.path)
    space = notebook(dataclasses.replace(CELLS[name], before=runs), folder)
    try:
        yield space
    finally:
        ended(space)
        as_before(variables, before, places)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", [one for one, cell in CELLS.items() if cell.restored and not one.startswith(LONG)])
def test_a_whole_training(name: str, tmp_path: Path) -> None:
    """Restored as around the sides of a trial; files are the business of redirection, and torchmetrics takes long."""
    with opened(name, tmp_path, CELLS[name].before) as space:
        check(space, CELLS[name].code)


@pytest.mark.parametrize(
    "cell",
    [
        "net.eval()",
        "net.a.weight.requires_grad_(False)",
        "for p in net.parameters(): p.requires_grad_(False); p.grad = None",
        "opt.add_param_group({'params': [torch.zeros(3, requires_grad=True)], 'lr': 1.0})",
        "opt.param_groups[0]['lr'] = 9.0",
        "opt.state.clear()",
        "net.half()",
        "net.a.weight.data = torch.zeros(2, 2)",
        "net.a = torch.nn.Linear(6, 12)",
        "net.register_forward_hook(lambda *a: None)",
        "net.a.weight.register_hook(lambda g: g); net.a.weight.grad = None",
        "net.load_state_dict({k: torch.zeros_like(v) for k, v in net.state_dict().items()})",
        "net.extra = torch.nn.Linear(1, 1); net.note = 'x'",
        "del net.a",
        "opt.zero_grad(); net(torch.ones(4, 6)).sum().backward()",
        "torch.manual_seed(99); random.seed(1); np.random.seed(2)",
        "torch.rand(3); random.random(); np.random.rand()",
        "next(iter(loader))",
        "metric.update(3.0, torch.zeros(1, 3), torch.zeros(1).int())",
        "type(metric).best = 0.0",
    ],
)
def test_models_optimizers_and_metrics(cell: str, tmp_path: Path) -> None:
    """Switches of the process stand in `test_snapshot_process.py`."""
    with opened("metrics: own class, list, deque, defaultdict, Counter", tmp_path, runs=1) as space:
        check(space, cell)


def closure() -> Any:
    count, seen = 0, []

    def bump() -> int:
        nonlocal count
        count += 1
        seen.append(count)
        bump.calls = count  # type: ignore[attr-defined]
        return count

    return bump


def plain() -> dict[str, Any]:
    big = torch.zeros(1000)
    return {
        "numbers": list(range(5)), "nested": {"a": [1, {"b": [2]}]}, "s": {1, 2}, "q": collections.deque([1, 2], 5),
        "od": collections.OrderedDict(a=1, b=2), "dd": collections.defaultdict(list, x=[1]), "bytes_": bytearray(b"ab"),
        "counts": collections.Counter("aab"), "array": np.arange(6.0), "objects": np.array([[1], {}], object),
        "rng": np.random.default_rng(3), "legacy": np.random.RandomState(4), "dice": random.Random(5),
        "bump": closure(),
        "slotted": Slotted(), "frozen": Frozen(), "pair": ([1], [2]), "tail": big[990:], "total": torch.zeros(()),
        "w": torch.ones(2, requires_grad=True), "step": 0, "f": None, "torch": torch, "np": np,
    }  # fmt: skip


@pytest.mark.parametrize(
    "cell",
    [
        "numbers.append(5); numbers[0] = 9",
        "numbers = [1]",
        "del numbers; new_name = 3",
        "step += 1",
        "def f():\n    global step\n    step = 7\nf()",
        "nested['a'][1]['b'].append(3); nested['a'][1]['c'] = 4",
        "nested.clear()",
        "s.add(3); s.discard(1)",
        "q.extend([7, 8, 9, 10])",
        "od.move_to_end('a')",
        "od['c'] = 3; del od['a']",
        "dd['y'].append(1); dd['x'].append(2)",
        "counts.update('zz')",
        "bytes_.extend(b'zz')",
        "array *= 2",
        "array[1:3].fill(7)",
        "objects[0].append(2)",
        "objects[0] = None",
        "rng.random(3)",
        "legacy.rand(3)",
        "dice.random()",
        "bump()",
        "slotted.a.append(2); slotted.b = 3",
        "frozen.values.append(1)",
        "pair[0].append(3)",
        "tail.fill_(3)",
        "total += w.sum()",
        "(w * 2).sum().backward()",
        "w.data = torch.zeros(5)",
        "total.data = total.view(torch.int32)",
    ],
)
def test_plain_python(cell: str) -> None:
    check(plain(), cell)


def test_views_of_one_storage_are_copied_once_and_come_back_together() -> None:
    flat = torch.randn(1000)
    space = {"flat": flat, "parts": [flat[:500], flat[500:]], "torch": torch}
    snapshot = check(space, "parts[0].zero_(); flat[700] = 3")
    assert 4000 <= snapshot.bytes < 6000
    assert Snapshot.take({"head": flat[:10]}).bytes < 2000, "a small view does not bring its whole storage"


@pytest.mark.parametrize("size", [0, 100])
def test_a_storage_that_was_emptied_or_grew_has_its_bytes_again(size: int) -> None:
    """As FSDP frees the weights that it has gathered, and `out=` makes room for a larger result."""
    x = torch.arange(4.0)
    snapshot = Snapshot.take({"x": x})
    x.untyped_storage().resize_(size)
    assert snapshot.restore() == ()
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0] and x.untyped_storage().nbytes() == 16


def test_a_hook_that_a_cell_registers_on_a_weight_is_not_called_by_the_next_backward() -> None:
    w, heard = torch.ones(2, requires_grad=True), list[str]()
    own = torch.ones(2, requires_grad=True)
    own.register_hook(lambda grad: heard.append("own"))
    snapshot = Snapshot.take({"w": w, "own": own})
    for _ in range(2):
        w.register_hook(lambda grad: heard.append("cell's"))
        own.register_hook(lambda grad: heard.append("cell's"))
        assert snapshot.restore() == ()
        heard.clear()
        (w * own).sum().backward()
        assert heard == ["own"]


def test_a_backward_pass_that_waits_since_an_earlier_cell_finds_what_autograd_saved() -> None:
    """Its bytes are those that autograd saw, and so is the number of changes that it counted."""
    w, x = torch.ones(3, requires_grad=True), torch.arange(30.0)
    part = x[27:]
    loss = (w * w * part).sum()
    snapshot = Snapshot.take({"w": w, "part": part})
    versions = w._version, part._version, x._version
    for _ in range(2):
        with torch.no_grad():
            w.mul_(3)
            part.add_(1)
        assert snapshot.restore() == ()
        assert (w._version, part._version, x._version) == versions
    loss.backward()
    assert w.grad is not None and w.grad.tolist() == [54.0, 56.0, 58.0]


LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("change", ["x.mul_(3)", "x.zero_()", "x.add_(x.clone())"])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_other_layouts_and_of_inference_mode_come_back(
    layout: torch.layout, inference: bool, change: str
) -> None:
    with torch.inference_mode(inference):
        dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        x = dense if layout is torch.strided else dense.to_sparse(layout=layout)
    snapshot = Snapshot.take({"x": x})
    for _ in range(2):
        with torch.inference_mode(inference):
            run(change, {"x": x})
        assert snapshot.unrestorable == snapshot.restore() == ()
        with torch.inference_mode(inference):
            assert x.layout is layout and x.to_dense().tolist() == [[0.0, 1.0], [2.0, 0.0]]


def test_a_lazy_layer_is_lazy_again() -> None:
    lazy = nn.LazyLinear(3)
    snapshot = Snapshot.take({"lazy": lazy})
    lazy(torch.zeros(2, 5))
    assert type(lazy) is nn.Linear
    assert snapshot.restore() == ()
    assert type(lazy) is nn.LazyLinear
    assert lazy.has_uninitialized_params()
    assert lazy(torch.zeros(2, 7)).shape == (2, 3)


def test_ipython_names_are_left_alone() -> None:
    space: dict[str, Any] = {"_ih": [""], "In": [""], "Out": {}, "x": [1], "_": 1, "_3": [4]}
    snapshot = Snapshot.take(space)
    space["In"].append("cell")
    space["_"], space["_4"], space["x"] = 2, 5, None
    assert snapshot.restore() == ()
    assert space["In"] == ["", "cell"]
    assert (space["_"], space["_4"], space["x"]) == (2, 5, [1])


def test_what_cannot_be_restored_is_named() -> None:
    """A database is not: it refuses where it is used."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        space: dict[str, Any] = {"waiting": queue.SimpleQueue(), "ok": [1], "holder": {"inner": queue.Queue()}}
        found = Snapshot.take({**space, "db": db, "errors": [sqlite3.Error()]}).unrestorable
    assert set(found) == {"waiting (SimpleQueue)", "holder (Queue)"}
    assert Snapshot.take({"ok": [1], "loader": DataLoader(TensorDataset(torch.zeros(2)))}).unrestorable == ()


def test_a_strided_nested_tensor_has_no_shape_and_comes_back() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    space: dict[str, Any] = {"nested": nested, "w": torch.zeros(2, requires_grad=True)}
    snapshot = Snapshot.take(space)
    nested.mul_(3)
    space["w"].grad = torch.ones(2)
    assert snapshot.restore() == ()
    assert [one.tolist() for one in nested.unbind()] == [[1.0] * 2, [1.0] * 3] and space["w"].grad is None


def test_a_store_that_cannot_be_written_hinders_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"w": torch.zeros(2), "a": np.zeros(2)}
    snapshot = Snapshot.take(space)
    space["a"] += 1

    def breaks(store: Any) -> list[str]:
        raise RuntimeError("no more")

    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.TensorStore.restore", breaks)
    (note,) = snapshot.restore()
    assert "tensors and arrays could not be put back" in note and note.endswith(": no more")
    assert space["a"].tolist() == [0.0, 0.0]


def test_gpus_that_the_trial_begins_draw_from_the_same_seed_in_every_run() -> None:
    state = torch.get_rng_state()
    with SimulatedCuda(cards=2) as cuda:
        torch.manual_seed(1234)
        snapshot = Snapshot.take({})
        assert snapshot.restore() == () and not cuda.device.touched
        torch.cuda.init()
        torch.manual_seed(5)
        assert [one.initial_seed() for one in torch.cuda.default_generators] == [5, 5]
        assert snapshot.restore() == ()
        assert [one.initial_seed() for one in torch.cuda.default_generators] == [1234, 1234]
    torch.set_rng_state(state)


def test_a_generator_without_a_state_is_left_alone() -> None:
    space: dict[str, Any] = {"rng": random.SystemRandom()}
    snapshot = Snapshot.take(space)
    assert snapshot.unrestorable == snapshot.restore() == ()


def test_workers_started_in_the_trial_are_stopped() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=1, persistent_workers=True)
    snapshot = Snapshot.take({"loader": loader})
    list(loader)
    workers = loader._iterator._workers  # type: ignore[union-attr]
    snapshot.restore()
    assert loader._iterator is None
    assert not any(worker.is_alive() for worker in workers)


def test_a_container_may_have_less_room_than_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: types.SimpleNamespace(available=2**40, total=2**41))
    monkeypatch.setattr("gpu_doctor.machine.cgroup.memory_bytes", lambda root: (2**30, 2**30 - 1000))
    assert room_bytes() == 500
    with pytest.raises(SnapshotTooLarge, match=r"needs a copy of the state, 4 KiB, and only 500 B"):
        Snapshot.take({"x": torch.zeros(1000)})
    monkeypatch.setattr("gpu_doctor.machine.cgroup.memory_bytes", lambda root: (2**30, 2**31))
    assert room_bytes() == 0
    monkeypatch.setattr("gpu_doctor.machine.cgroup.memory_bytes", lambda root: None)
    assert room_bytes() == 2**39


def test_a_copy_that_runs_out_of_memory_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.TensorStore.copy", full)
    values = {"x": torch.zeros(1000)}
    with pytest.raises(SnapshotTooLarge, match=r"a copy of the state, 4 KiB, .* \(CUDA"):
        Snapshot.take(values)
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.TensorStore.copy", lambda self: torch.zeros(2).view(3))
    with pytest.raises(RuntimeError, match="shape"):
        Snapshot.take(values)


def uncopied(space: dict[str, Any]) -> list[str]:
    """What a snapshot of some names would not copy."""
    walk = Walk()
    walk.over([space], ())
    return [one for store in walk.stores() for one in store.uncopied.values()]


def test_big_data_of_a_dataset_is_named_and_watched_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 1000)
    data = TensorDataset(torch.zeros(512))
    data.table = np.zeros(512)  # type: ignore[attr-defined]
    space = {"train": data, "x": data.tensors[0], "model": nn.Linear(40, 40), "row": data.tensors[0][:3]}
    assert uncopied(space) == ["train (a tensor of 2 KiB)", "train (an array of 4 KiB)"]
    snapshot = Snapshot.take(space)
    assert snapshot.bytes < 8000 and snapshot.unrestorable == snapshot.restore() == ()
    for _ in range(2):
        data.tensors[0][7] = 1
        assert snapshot.changed_data() == ["train (a tensor of 2 KiB)"]
        assert "changed in place" in snapshot.restore()[0], "a view of it that is copied does not hide the change"
    data.table[3:20] = 1  # type: ignore[attr-defined]
    assert "(an array of 4 KiB) was changed in place" in snapshot.restore()[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float64, torch.complex128])
def test_a_change_of_big_data_that_autograd_does_not_count_is_seen(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 1000)
    rows = torch.ones(4000, dtype=dtype)
    snapshot = Snapshot.take({"train": TensorDataset(rows)})
    assert snapshot.changed_data() == []
    rows.data[2000:2100] *= 2  # `.data` has a count of its own
    assert len(snapshot.changed_data()) == 1 and len(snapshot.restore()) == 1


def test_a_tensor_that_torch_does_not_let_go_of_is_named_once() -> None:
    view = torch.zeros(4)[:2]
    snapshot = Snapshot.take({"view": view})
    view.mul_(torch.ones(2, requires_grad=True))
    notes = snapshot.restore()
    assert len(notes) == 1 and notes[0].startswith("A tensor of shape (2,) could not be put back")


def test_workers_that_were_there_before_are_not_ended() -> None:
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 4
    kept: Any = loader._iterator
    Snapshot.take({"loader": loader}).restore()
    now: Any = loader._iterator
    assert now is kept and kept._workers[0].is_alive() and len(list(loader)) == 4


def test_big_data_in_a_scripted_part_of_a_dataset_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 1000)
    table = nn.Module()
    table.register_buffer("rows", torch.zeros(512))
    data = TensorDataset(torch.zeros(2))
    data.table = torch.jit.script(table)  # type: ignore[attr-defined]
    assert uncopied({"train": data}) == ["train (a tensor of 2 KiB)"]


def test_what_a_librarys_function_remembers_is_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics.mean, "seen", [1], raising=False)
    snapshot = Snapshot.take({"mean": statistics.mean})
    statistics.mean.seen.append(2)  # type: ignore[attr-defined]
    snapshot.restore()
    assert statistics.mean.seen == [1, 2]  # type: ignore[attr-defined]


def test_copies_of_a_devices_tensors_go_where_there_is_room() -> None:
    cpu, first, second = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
    free = {cpu: 1 << 62, first: 4000, second: 3999}.__getitem__
    wanted = {cpu: 50, first: 1000, second: 1000}
    assert on_host(wanted, free, False) == {cpu, second}
    assert on_host(wanted, free, True) == {cpu, first, second}
    assert on_host({first: 1}, free, False) == set()


def test_what_the_copies_take_of_the_cpu_is_what_must_fit() -> None:
    store = TensorStore([torch.zeros(100), torch.zeros(28)[:1]], {})
    assert store.bytes == store.host_bytes == 404


def test_copies_on_a_device_are_counted_while_they_live() -> None:
    snapshot = Snapshot.take({"w": torch.zeros(100)})
    assert held_bytes(0) == 0, "a copy in the CPU's memory is none on a device"
    torch_memory.hold(snapshot, {0: 300, 1: 7})
    assert (held_bytes(0), held_bytes(1), held_bytes(2)) == (300, 7, 0)
    del snapshot
    assert held_bytes(0) == 0


def test_a_model_inside_a_dataset_is_copied_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 1000)
    data = TensorDataset(torch.zeros(2))
    data.net = nn.BatchNorm1d(1000)  # type: ignore[attr-defined]
    snapshot = Snapshot.take({"data": data})
    with torch.no_grad():
        data.net.weight.zero_()  # type: ignore[attr-defined]
        data.net.running_mean.fill_(3)  # type: ignore[attr-defined]
    assert snapshot.restore() == ()
    assert data.net.weight.sum() == 1000  # type: ignore[attr-defined]
    assert data.net.running_mean.sum() == 0  # type: ignore[attr-defined]


def test_an_interactive_shell_is_walked_quickly_and_names_nothing() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("import torch\nclass Box: items = []\nbox = Box(); n = 1\ndef f(x, seen=[]):\n    seen.append(x)")
    space = shell.user_ns
    snapshot = Snapshot.take(space)
    assert snapshot.unrestorable == ()
    history = len(space["In"])
    shell.run_cell("box.items.append(1); Box.extra = 2; f(3); n += 1; fresh = 1")
    assert snapshot.restore() == ()
    assert (space["box"].items, space["n"], space["f"].__defaults__) == ([], 1, ([],))
    assert "fresh" not in space
    assert not hasattr(space["Box"], "extra")
    assert len(space["In"]) >= history


COUNTS = [0]


TOTAL = 0


def _count() -> None:
    global TOTAL
    COUNTS.append(1)
    TOTAL += 1


def test_a_function_brings_the_globals_of_its_module() -> None:
    snapshot = Snapshot.take({}, extra=[_count])
    _count()
    assert snapshot.restore() == ()
    assert (COUNTS, TOTAL) == ([0], 0)


def test_a_set_that_was_not_changed_keeps_its_order() -> None:
    names = {f"name {i}" for i in range(50)}
    for i in range(40):
        names.discard(f"name {i}")
    space: dict[str, Any] = {"names": names}
    order = list(names)
    snapshot = Snapshot.take(space)
    assert snapshot.restore() == ()
    assert list(names) == order
    names.add("more")
    assert snapshot.restore() == ()
    assert names == set(order)


def test_the_names_of_modules_of_the_users_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_module.py").write_text("STEP, seen = 0, []\ndef tick():\n    global STEP\n    STEP += 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("my_own_module")
    for space in ({"module": module}, {"tick": module.tick}):
        snapshot = Snapshot.take(space)
        module.tick()
        module.seen.append(1)
        module.extra = 1
        del module.tick
        assert snapshot.restore() == ()
        assert (module.STEP, module.seen, hasattr(module, "extra"), callable(module.tick)) == (0, [], False, True)


def test_a_part_of_a_package_that_a_cell_imports_is_still_found_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python imports it once, and hangs it on its package then: the cell's next run would not find it."""
    (tmp_path / "my_own_package").mkdir()
    for name in ("__init__", "layers"):
        (tmp_path / "my_own_package" / f"{name}.py").write_text("width = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space: dict[str, Any] = {"my_own_package": importlib.import_module("my_own_package")}
    snapshot = Snapshot.take(space)
    for _ in range(2):
        run("import my_own_package.layers\nmy_own_package.width += my_own_package.layers.width", space)
        assert snapshot.restore() == ()
        assert space["my_own_package"].width == 3


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # pandas: deprecated, and still what cells do
def test_tables_of_pandas_come_back() -> None:
    pandas = importlib.import_module("pandas")
    log = pandas.DataFrame({"step": [0, 1], "loss": [2.0, 1.5]})
    best = pandas.Series([1.0, 2.0], index=["a", "b"])
    space: dict[str, Any] = {"log": log, "best": best}
    before = log.copy(), best.copy()
    snapshot = Snapshot.take(space)
    for change in (
        lambda: log.__setitem__("lr", 0.1),
        lambda: log.loc.__setitem__(2, [2, 1.0]),
        lambda: log.drop(columns="loss", inplace=True),
        lambda: log.iloc.__setitem__((0, 0), 9),
        lambda: log.rename(columns={"loss": "l"}, inplace=True),
        lambda: best.__setitem__("c", 3.0),
        lambda: log.set_index("step", inplace=True),
    ):
        change()
        assert not (log.equals(before[0]) and best.equals(before[1]) and list(log.columns) == list(before[0].columns))
        assert snapshot.restore() == ()
        pandas.testing.assert_frame_equal(log, before[0])
        pandas.testing.assert_series_equal(best, before[1])
    assert space["log"] is log


def test_a_table_above_the_limit_is_named_and_none_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = importlib.import_module("pandas")
    log = pandas.DataFrame({"loss": [2.0, 1.5]})
    space, size = {"log": log, "best": log["loss"].copy()}, int(log.memory_usage().sum())
    monkeypatch.setattr("gpu_doctor.trials.snapshot.walk.BIG_DATA_BYTES", size)
    snapshot = Snapshot.take(space)
    log["loss"] = 0.0
    assert snapshot.unrestorable == snapshot.restore() == () and log["loss"].tolist() == [2.0, 1.5]
    monkeypatch.setattr("gpu_doctor.trials.snapshot.walk.BIG_DATA_BYTES", size - 1)
    assert set(Snapshot.take(space).unrestorable) == {"log (large DataFrame)", "best (large Series)"}


class OnCard:
    """Stands in for a storage on the second of two GPUs, and logs where it is copied to."""

    def __init__(self, nbytes: int, log: list[Any], device: str = "cuda:1") -> None:
        self.device, self.size, self.log = torch.device(device), nbytes, log

    def nbytes(self) -> int:
        return self.size

    def cpu(self) -> OnCard:
        self.log.append("to the host")
        return OnCard(self.size, self.log, "cpu")

    def clone(self) -> OnCard:
        self.log.append("on its card")
        return OnCard(self.size, self.log)

    def copy_(self, saved: OnCard) -> None:
        self.log.append("put back")

    def data_ptr(self) -> int:
        return 1


class TensorOnCard(torch.Tensor):
    """Stands in for a tensor on the second of two GPUs; it has no bytes."""

    copies: list[Any]

    def __new__(cls, size: int, log: list[Any]) -> TensorOnCard:
        make: Any = torch.Tensor._make_wrapper_subclass
        made = make(cls, (size,), device="cuda:1")
        made.copies = log
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return args[0]  # of detach

    def untyped_storage(self) -> Any:
        return OnCard(4 * self.numel(), self.copies)


@pytest.mark.parametrize("in_use", [True, False])
@pytest.mark.parametrize(
    ("free", "on_host", "copied"), [((0, 1 << 30), 0, "on its card"), ((1 << 30, 0), 1000, "to the host")]
)
def test_a_copy_stays_on_its_card_where_that_has_room_and_streams_are_at_rest_at_both_ends(
    free: tuple[int, int], on_host: int, copied: str, in_use: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands in for CUDA; tests/gpu/test_snapshot_gpu.py runs on a card."""
    log: list[Any] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free[device.index if device else 0], 1 << 30))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: in_use)
    monkeypatch.setattr(torch.cuda, "synchronize", log.append)
    store = TensorStore([TensorOnCard(250, log), torch.zeros(4)], {})
    assert (store.unrestorable, store.bytes, store.host_bytes) == ([], 1016, on_host + 16)
    store.copy()
    assert (held_bytes(1), held_bytes(0)) == (1000 - on_host, 0)
    store.restore()
    card = [torch.device("cuda:1")] * in_use
    assert log == [*card, copied, *card, *card, "put back", *card]

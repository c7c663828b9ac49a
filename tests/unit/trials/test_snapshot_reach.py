"""How far a snapshot reaches: classes, functions behind decorators and caches, imported files, other libraries."""

from __future__ import annotations

import collections
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.snapshot.walk import Walk
from tests.support.reaching import PARTS, comes_back, notebook


@pytest.mark.parametrize(
    ("setup", "cell", "look"),
    [
        ("class CFG: model = nn.Linear(4, 1)", "ones(CFG.model.weight)", "CFG.model.weight.tolist()"),
        ("class CFG: inner = type('Inner', (), {'log': []})", "CFG.inner.log.append(1)", "CFG.inner.log"),
        ("", "Net.forward = lambda self, x: 0", "Net.forward"),
        ("", "Net.__init__ = lambda self: None", "Net.__init__"),
        ("", "Net.__call__ = lambda self, x: 0", "'__call__' in vars(Net)"),
        ("", "del Net.forward", "vars(Net).get('forward')"),
        ("", "Net.forward.__defaults__[0].append(1)", "Net.forward.__defaults__"),
        (
            "class A:\n    @property\n    def x(self, seen=[]): return seen",
            "A().x.append(1)",
            "A().x",
        ),
        ("class A:\n    @property\n    def x(self): return 1", "A.x = property(lambda self: 2)", "A().x"),
        ("class A:\n    @staticmethod\n    def x(seen=[]): return seen", "A.x().append(1)", "A.x()"),
        ("class Base: log = []\nclass A(Base): pass\ndel Base", "A.log.append(1)", "A.log"),
    ],
)
def test_classes(setup: str, cell: str, look: str) -> None:
    comes_back(notebook(setup), cell, look)


def test_a_class_that_was_not_changed_is_not_written_to() -> None:
    written: list[str] = []

    class Watched(type):
        def __setattr__(cls, name: str, value: Any) -> None:
            written.append(name)
            super().__setattr__(name, value)

    space = notebook("")
    space["Watched"] = Watched
    exec("class A(metaclass=Watched):\n    x = 1\n    def f(self): return 1", space)
    snapshot = Snapshot.take(space)
    assert snapshot.restore() == ()
    assert written == []
    space["A"].x = 2
    snapshot.restore()
    assert (written, space["A"].x) == (["x"], 1)  # the list itself, which a method leads to, was put back before


CACHED = "@functools.{cache}\ndef parts(n=1): return nn.Linear(4, n)\nparts()\nparts.count = 0"


@pytest.mark.parametrize("cache", ["cache", "lru_cache", "lru_cache(maxsize=2)"])
def test_a_cached_function_brings_the_results_that_it_remembers(cache: str) -> None:
    space = notebook(CACHED.format(cache=cache))
    comes_back(space, "ones(parts().weight); parts.count += 1", "parts().weight.tolist(), id(parts()), parts.count")


def test_a_cached_function_brings_what_it_calls() -> None:
    setup = "def made():\n    hidden = nn.Linear(4, 1)\n    return functools.lru_cache(lambda: hidden)\nparts = made()"
    comes_back(notebook(setup), "ones(parts().weight)", "parts.__wrapped__().weight.tolist()")


@pytest.mark.parametrize(
    ("setup", "cell", "look"),
    [
        ("u = collections.UserDict(a=1)", "u['b'] = 2; u['a'] = 3", "dict(u)"),
        ("u = collections.UserList([1])", "u.append(2)", "list(u)"),
        ("u = collections.ChainMap({'a': 1})", "u['b'] = 2", "dict(u)"),
        ("k = Net(); u = weakref.WeakKeyDictionary({k: [1]})", "u[k].append(2); u[ones] = 1", "list(u.values())"),
        ("k = Net(); u = weakref.WeakValueDictionary(a=k)", "u['b'] = k; del u['a']", "sorted(u)"),
        ("k = Net(); u = weakref.WeakSet([k])", "u.discard(k)", "len(u)"),
        ("def kept(): return [1]\nu = kept().append", "u(2)", "list(u.__self__)"),
        ("def kept(): return {1: [2]}\nu = kept().items()", "next(iter(u))[1].append(3)", "list(u)"),
    ],
)  # fmt: skip
def test_containers_of_the_standard_library(setup: str, cell: str, look: str) -> None:
    comes_back(notebook(setup), cell, look)


def test_a_weak_reference_leads_to_what_no_name_leads_to() -> None:
    holder = [torch.nn.Linear(2, 1)]
    space = notebook("")
    space["u"] = sys.modules["weakref"].ref(holder[0])
    comes_back(space, "ones(u().weight)", "u().weight.tolist()")


ONCE = "import queue\nonce = queue.SimpleQueue()\n"
HOLDERS = (
    *("[once]", "{1: once}", "{once: 1}", "{once}", "(once,)", "collections.deque([once])", "np.array([once], object)"),
    *("{1: once}.values()", "dict(a=once).items()", "functools.partial(id, once)", "functools.partial(id, a=once)"),
    *("lambda part=once: part", "(lambda inner: lambda: inner)(once)", "[once].append", "[once].__iter__"),
    *("collections.UserList([once])", "types.SimpleNamespace(a=once)", "type('Own', (), {'a': once})"),
    *(
        f"type('Own', ({kind},), {{'__init__': lambda self, part: setattr(self, 'part', part)}})(once)"
        for kind in ("list", "dict", "set", "collections.deque")
    ),
    *("type('Own', (), {'a': lambda self, part=once: part})().a", "functools.lru_cache(lambda part=once: part)"),
)


@pytest.mark.parametrize(
    ("setup", "kind"),
    [
        ("threading.local()", "_thread._local"),
        ("multiprocessing.Value('i', 3)", "Synchronized"),
        ("multiprocessing.Value('i', 3).get_obj()", "c_int"),
        ("multiprocessing.Array('d', 3)", "SynchronizedArray"),
    ],
)
def test_what_threads_and_processes_have_of_their_own_or_share_is_named(setup: str, kind: str) -> None:
    assert Snapshot.take(notebook(f"held = {setup}")).unrestorable == (f"held ({kind.rpartition('.')[2]})",)


@pytest.mark.parametrize("holder", [*HOLDERS, *(f"[[{one}]]" for one in HOLDERS)])
def test_what_cannot_be_put_back_is_named_by_the_variable_that_leads_to_it(holder: str) -> None:
    space = notebook(f"import functools, types, numpy as np\n{ONCE}held = {holder}\ndel once")
    assert Snapshot.take(space).unrestorable == ("held (SimpleQueue)",)


def test_so_is_what_hangs_on_a_tensor_or_lies_in_a_slot() -> None:
    weight = "held = torch.zeros(2, requires_grad=True)\nheld.register_hook(lambda grad, part=once: grad)"
    attribute = "held = torch.zeros(2)\nheld.part = once"
    slots = "class Slots: __slots__ = ('part',)\nheld = Slots()\nheld.part = once"
    weak = "import weakref\nclass Own: pass\nown = Own()\nown.part = once\nheld = weakref.ref(own)"
    for setup in (weight, attribute, slots):
        assert Snapshot.take(notebook(f"{ONCE}{setup}\ndel once")).unrestorable == ("held (SimpleQueue)",), setup
    space = notebook(f"{ONCE}{weak}\ndel once")
    kept = space.pop("own")
    assert Snapshot.take(space).unrestorable == ("held (SimpleQueue)",) and kept is not None


def test_an_object_that_answers_for_its_dict_itself_hinders_nothing() -> None:
    odd = "class Odd:\n    __slots__ = ()\n    __dict__ = property(lambda self: 'none')\nodd, u = Odd(), []"
    comes_back(notebook(odd), "u.append(odd)", "len(u)")


TRAINER = """
from torch import nn
net, LOG, STEP = nn.Linear(4, 1), [], 0
class Base:
    built = []
class Trainer(Base):
    def fit(self):
        global STEP
        STEP += 1
        LOG.append(STEP)
        Base.built.append(STEP)
        nn.init.ones_(net.weight)
"""


def test_what_an_import_in_a_cell_hangs_on_a_class_of_torchs_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library is imported once: without its patch it would not work from then on."""
    monkeypatch.setattr(torch.nn.Linear, "patched", False, raising=False)
    snapshot = Snapshot.take({"layer": torch.nn.Linear(4, 1)})
    torch.nn.Linear.patched = True  # type: ignore[attr-defined]
    assert snapshot.restore() == ()
    assert torch.nn.Linear.patched  # type: ignore[attr-defined]


def test_an_imported_class_brings_the_names_of_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_train_of_classes.py").write_text(TRAINER)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_train_of_classes")
    for space in ({"Trainer": module.Trainer}, {"trainer": module.Trainer()}):
        weight = module.net.weight.clone()
        snapshot = Snapshot.take({"__name__": "__main__", **space})
        module.Trainer().fit()
        assert not torch.equal(weight, module.net.weight)
        assert snapshot.restore() == ()
        assert torch.equal(weight, module.net.weight)
        assert (module.LOG, module.STEP, module.Base.built) == ([], 0, [])


def test_a_decorated_function_of_the_users_brings_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round: `functools.wraps` of a function of torch's says that the user's own one were torch's."""
    (tmp_path / "my_wrapping.py").write_text(
        "import functools, torch\nLOG = []\n@functools.wraps(torch.relu)\ndef relu(x):\n    LOG.append(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_wrapping")
    module.relu.__module__ = "torch.nn.functional"
    snapshot = Snapshot.take({"relu": module.relu})
    module.relu(1)
    assert snapshot.restore() == ()
    assert module.LOG == []


def test_a_decorated_function_under_trial_runs_in_the_namespace_of_the_users(tmp_path: Path) -> None:
    space = notebook("log = []\n@torch.no_grad()\ndef train():\n    log.append(1)")
    assert gpu_doctor.case(space["train"]).namespace is space
    snapshot = Snapshot.take({}, extra=[space["train"]])
    space["train"]()
    assert snapshot.restore() == ()
    assert space["log"] == []


def test_what_could_be_written_to_is_known_by_name(tmp_path: Path) -> None:
    import mmap
    import shelve

    with shelve.open(str(tmp_path / "runs")) as runs, mmap.mmap(-1, 16) as shared:
        walk = Walk()
        walk.over([{"runs": runs, "shared": shared}], ())
        assert {name for _, name in walk.writable} == {"runs", "shared"}


def test_a_search_of_a_library_that_does_not_know_torch_is_kept_where_it_holds_what_is_trained() -> None:
    queue = importlib.import_module("sched")  # any library's class will do
    holder, empty = queue.scheduler(), queue.scheduler()
    holder.best = torch.zeros(2)
    walk = Walk()
    walk.over([{"holder": holder, "empty": empty}], ())
    assert walk.kept["instance"] == [holder]
    snapshot = Snapshot.take({"holder": holder})
    holder.best += 1
    holder.rounds = 3
    assert snapshot.restore() == ()
    assert holder.best.sum() == 0
    assert not hasattr(holder, "rounds")


def test_a_library_made_for_torch_is_walked_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages" / "some_training_library"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from .engine import History\n")
    (folder / "engine.py").write_text("class History(list):\n    epoch = 0\nclass Plain:\n    n = 0\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    library = importlib.import_module("some_training_library")
    space: dict[str, Any] = {"history": library.History(), "plain": library.engine.Plain()}
    walk = Walk()
    walk.over([space], ())
    assert not walk.kept["instance"], "nothing of it has to do with torch"
    (folder / "loops.py").write_text("import torch\n")
    importlib.import_module("some_training_library.loops")
    snapshot = Snapshot.take(space)
    space["history"].append(1)
    space["plain"].n = 2
    assert snapshot.restore() == ()
    assert space["history"] == []
    assert space["plain"].n == 0


def test_what_watches_and_shows_is_left_alone() -> None:
    space: dict[str, Any] = {"weight": torch.zeros(1)}
    case = gpu_doctor.case("weight += 1", space)
    case.held = space["weight"]  # type: ignore[attr-defined]
    walk = Walk()
    walk.over([{"case": case, "empty": collections.Counter()}], ())
    assert not walk.kept["instance"] and not walk.kept["tensor"]


def test_what_a_run_trained_with_is_freed_with_its_names() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    case = gpu_doctor.case(f"{PARTS}\nmodel.circle = [model]\ntrain()", space)
    case.run()
    assert {type(one).__name__ for one in case.roots()[1:]} == {"DataLoader", "Sequential", "SGD"}
    space.clear()
    assert case.roots() == (case.source,)


@pytest.mark.parametrize(
    ("setup", "cell", "look"),
    [
        ("d = collections.defaultdict(list, a=[1])", "d['b']; d.default_factory = int", "d, d.default_factory"),
        (
            "class C(collections.Counter): pass\nc = C('aab'); c.seen = [1]",
            "c['z'] += 5; c.seen += [2]",
            "c, c.seen",
        ),
        ("class D(collections.deque): pass\nd = D([1], 5); d.seen = [1]", "d.append(3); d.seen.append(2)", "d, d.seen"),
    ],
)
def test_containers_of_a_persons_own_kind(setup: str, cell: str, look: str) -> None:
    comes_back(notebook(setup), cell, look)


def test_an_estimator_is_known_by_its_form() -> None:
    code = "class Scale:\n    mean = 0\n    def fit(self, x): self.mean = x\n    get_params = set_params = fit\n"
    space = notebook(code + "s = Scale()")
    space["Scale"].__module__ = "somebodys.library"
    comes_back(space, "s.fit(3)", "s.mean")

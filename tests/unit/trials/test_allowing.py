"""A cell that starts processes, uses the network or changes large data has no trial unless `allow=` names it."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import gpu_doctor
from gpu_doctor.capture.patching import active
from gpu_doctor.trials.allowing import PERMISSIONS, checked
from gpu_doctor.trials.side_effects.reach_guard import ReachGuard
from tests.support.trial_starts import STARTS

LOOP = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


class Odd:
    """Starts a process in a way that the text of the cell does not show."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __neg__(self) -> int:
        subprocess.run(["touch", str(self.mark)], check=True)
        return 1


def space(**more: Any) -> dict[str, Any]:
    return {
        "__name__": "__main__",
        "torch": torch,
        "loader": DataLoader(_Rows(torch.randn(64, 4)), batch_size=4),
        **more,
    }


def trial(cell: str, names: dict[str, Any], **more: Any) -> Any:
    case = gpu_doctor.case(cell, names)
    return case, case.trial({"batch_size": 8}, steps=6, pairs=1, **more)


# ---- before anything runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("import os; os.system('true')", "processes"),
        ("import requests; requests.get('http://192.0.2.1')", "network"),
    ],
)
@pytest.mark.parametrize("start", STARTS)
def test_every_way_to_start_a_trial_is_refused_with_the_call_and_the_cure(start: str, head: str, name: str) -> None:
    case = gpu_doctor.case(f"{head}\n{LOOP}", space())
    said = STARTS[start](case)
    assert "in line 1" in said and f'allow=("{name}",)' in said
    assert case.beforehand().asks == {name: said}
    assert case.recordings == case.trials == []


def test_what_is_allowed_is_done_and_named_before(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    cell = f"import os; os.system('echo . >> {mark}')\n{LOOP}"
    case, effect = trial(cell, space(), allow=("processes",))
    assert effect.outcome in ("completed", "budget-reached") and mark.read_text().count(".") == 2
    said = case.beforehand(allow=["processes"])
    assert said.refusals == () and said.asks == {} and any("os.system in line 1" in one for one in said.lost)
    assert case.allowed == frozenset(), "a permission ends with what it was given for"


@pytest.mark.parametrize("wrong", ["processes", 3, None])
def test_allow_takes_a_tuple_of_names(wrong: Any) -> None:
    with pytest.raises(TypeError, match="allow"):
        gpu_doctor.case(LOOP, space()).trial({}, allow=wrong)


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="large_data") as found:
        gpu_doctor.case(LOOP, space()).treat(allow=("proceses",))
    assert "proceses" in str(found.value)
    assert checked(list(PERMISSIONS)) == set(PERMISSIONS)


# ---- what only a side shows --------------------------------------------------------------------------------------


def test_a_process_that_no_text_shows_ends_the_first_side_before_it_starts(tmp_path: Path) -> None:
    names = space(odd=Odd(tmp_path / "mark"))
    case, effect = trial(f"-odd\n{LOOP}", names)
    assert effect.outcome == "refused" and "subprocess.run in line" in effect.reason
    assert not names["odd"].mark.exists() and active() == ()
    assert list(case.beforehand().asks) == ["processes"], "the next trial is refused before it begins"
    assert case.trial({"batch_size": 8}, allow=("processes",), steps=6, pairs=1).outcome != "refused"
    assert names["odd"].mark.exists()


def test_a_treatment_of_what_only_a_side_shows_says_why(tmp_path: Path) -> None:
    case = gpu_doctor.case(f"-odd\n{LOOP}", space(odd=Odd(tmp_path / "mark")))
    plan = case.treat(steps=6)
    assert "subprocess.run in line" in plan.reason and plan.effects == ()
    assert case.treat(steps=6).reason == plan.reason and case.baseline is None


class Calls(Dataset):  # type: ignore[type-arg]
    """Starts a process for each item, and hides the error that keeps it from doing so."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        try:
            subprocess.run(["true"], check=True)
        except Exception:
            return torch.zeros(4)
        return torch.ones(4)


def test_workers_are_let_through_and_what_they_start_is_not() -> None:
    _, effect = trial(LOOP, space(loader=DataLoader(TensorDataset(torch.randn(64, 4)), num_workers=2)).copy())
    assert effect.outcome == "failed", "the batch is a list there, which the loop cannot take"
    _, effect = trial(LOOP, space(loader=DataLoader(_Rows(torch.randn(64, 4)), batch_size=4, num_workers=2)))
    assert effect.outcome in ("completed", "budget-reached")
    _, effect = trial(LOOP, space(loader=DataLoader(Calls(), batch_size=4, num_workers=2)))
    assert effect.outcome == "refused" and "subprocess.run in line" in effect.reason


@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("processes", lambda: os.system("true")),
        ("processes", lambda: os.popen("true")),
        ("processes", lambda: subprocess.Popen(["true"])),
        ("processes", lambda: os.spawnlp(os.P_WAIT, "true", "true")),
        ("processes", lambda: multiprocessing.get_context("fork").Process(target=print).start()),
        ("processes", lambda: multiprocessing.get_context("spawn").Pool(1)),
        ("network", lambda: socket.create_connection(("192.0.2.1", 9), timeout=0.01)),
        ("network", lambda: socket.getaddrinfo("example.invalid", 80)),
        ("network", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 9))),
        ("network", lambda: socket.create_connection(("127.0.0.1", 9))),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket that nobody came to close
def test_each_way_to_start_a_process_or_to_the_network_ends_a_side(kind: str, start: Any) -> None:
    with (
        ReachGuard(("processes",) if kind == "network" else ()) as guard,
        pytest.raises(BaseException, match="refused"),
    ):
        start()
    assert guard.reached is not None and guard.reached[0] == kind and active() == ()
    assert kind == "processes" or "in line" in guard.reached[1]


def test_what_is_nobody_elses_business_passes() -> None:
    import platform

    with ReachGuard(()) as guard:
        platform.uname.cache_clear() if hasattr(platform.uname, "cache_clear") else platform.uname().processor
        one, other = socket.socketpair()
        one.send(b"x")
        queue = multiprocessing.get_context("fork").Queue()
        queue.put(1)
        assert queue.get() == 1
    for each in (one, other):
        each.close()
    queue.close()
    assert guard.reached is None


def test_a_question_of_the_guards_own_that_fails_lets_nothing_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> bool:
        raise AttributeError

    monkeypatch.setattr("gpu_doctor.trials.side_effects.reach_guard._is_exempt", fails)
    with ReachGuard(()) as guard, pytest.raises(BaseException, match="refused"):
        os.system("true")
    assert guard.reached == ("processes", "os.system")


def test_an_interrupt_while_it_begins_leaves_nothing_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, original: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReachGuard, "_looking_up", interrupted)
    with pytest.raises(KeyboardInterrupt), ReachGuard(()):
        pass
    assert active() == ()


def test_threads_of_before_go_on_as_they_were() -> None:
    go, done, errors = threading.Event(), threading.Event(), list[BaseException]()

    def helper() -> None:
        try:
            subprocess.run(["true"], check=True)
        except BaseException as error:
            errors.append(error)

    def background() -> None:
        go.wait()
        helper()
        later = threading.Thread(target=helper)
        later.start()
        later.join()
        done.set()

    thread = threading.Thread(target=background)
    thread.start()
    with ReachGuard(()) as guard:
        go.set()
        done.wait()
    thread.join()
    assert errors == [] and guard.reached is None


# ---- large data --------------------------------------------------------------------------------------------------


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_doctor.trials.snapshot.tensors.BIG_DATA_BYTES", 500)
    monkeypatch.setattr("gpu_doctor.trials.large_data.BIG_DATA_BYTES", 500)


def data() -> dict[str, Any]:
    rows = torch.randn(64, 4)
    return space(rows=rows, loader=DataLoader(_Rows(rows), batch_size=4))


class _Rows(Dataset):  # type: ignore[type-arg]
    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]


@pytest.mark.parametrize(
    "line", ["rows[0] = 1", "rows += 1", "rows.mul_(2)", "rows[0].fill_(1)", "loader.dataset.rows *= 2"]
)
@pytest.mark.usefixtures("small_is_large")
def test_a_line_that_changes_large_data_refuses_before_it_runs(line: str) -> None:
    names = data()
    before = names["rows"].clone()
    _, effect = trial(f"{line}\n{LOOP}", names)
    assert effect.outcome == "refused" and "in line 1" in effect.reason and 'allow=("large_data",)' in effect.reason
    assert torch.equal(names["rows"], before)
    _, effect = trial(f"{line}\n{LOOP}", names, allow=("large_data",))
    assert effect.outcome in ("completed", "budget-reached")


class _Caching(_Rows):
    def __getitem__(self, index: int) -> Any:
        self.rows[index] = 1.0
        return self.rows[index]


class _Counting(_Rows):
    seen = 0

    def __getitem__(self, index: int) -> Any:
        self.seen += 1
        return self.rows[index]


@pytest.mark.parametrize(("kind", "refused"), [(_Caching, True), (_Counting, False)])
@pytest.mark.usefixtures("small_is_large")
def test_a_dataset_that_changes_its_data_as_it_is_read_refuses_too(kind: type[_Rows], refused: bool) -> None:
    names = space(loader=DataLoader(kind(torch.randn(64, 4)), batch_size=4))
    asks = gpu_doctor.case(LOOP, names).beforehand().asks
    assert list(asks) == ["large_data"] * refused
    assert not refused or "_Caching.__getitem__()" in asks["large_data"]


@pytest.mark.usefixtures("small_is_large")
def test_data_that_is_copied_or_only_read_refuses_nothing() -> None:
    names = data() | {"other": torch.randn(64, 4), "table": np.zeros(200)}
    case = gpu_doctor.case(f"other += 1\ntable[0] = rows[0].sum()\ncopy = rows.clone()\ncopy[0] = 1\n{LOOP}", names)
    assert case.beforehand().asks == {}


@pytest.mark.usefixtures("small_is_large")
def test_a_change_that_no_text_shows_ends_the_trial_with_its_first_side() -> None:
    names = data()
    case, effect = trial(f"view = [*rows]\nfor one in view: one += 1\n{LOOP}", names)
    assert effect.outcome == "refused" and effect.reason.count("loader (a tensor") == 1
    assert case.trials == [] and list(case.beforehand().asks) == ["large_data"]

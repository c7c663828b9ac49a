"""Lines inside the fetches are found where they run, with their true part of the fetch, and cost next to nothing."""

from __future__ import annotations

import inspect
import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import gpu_doctor
from gpu_doctor.capture.fetch.tally import LINES_BYTES, Sums
from gpu_doctor.capture.lines.fetch_costs import line_costs, shares, with_fetches
from gpu_doctor.capture.lines.fetch_sampler import FetchLines
from gpu_doctor.capture.lines.page import read_page, write_page
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.capture.lines.switch_interval import LOOK_S, QuickLooks
from gpu_doctor.recording import LineCost, Recording

CELL = """
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
POINTS = 0.10
"""A share may be off by so much: half of what separates seven parts of ten from the half of a line not told apart."""
SAMPLES = 640
"""As many as make the looks (one in 25 ms) err by 0.03, a third of `POINTS`."""


class Culprit(Dataset[Any]):
    """Computes on one line for seven parts and waits on another for three, or the other way round; says how long."""

    def __init__(self, spin_s: float, sleep_s: float, folder: Path, n: int) -> None:
        self.spin_s, self.sleep_s, self.folder, self.n = spin_s, sleep_s, folder, n
        self.spun = self.slept = 0.0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = time.perf_counter()
        until = time.thread_time() + self.spin_s
        while time.thread_time() < until:
            pass
        middle = time.perf_counter()
        time.sleep(self.sleep_s)
        self.spun += middle - begin
        self.slept += time.perf_counter() - middle
        if index >= self.n - 32:  # near the end of every worker's part
            (self.folder / f"{threading.get_native_id()}").write_text(f"{self.spun} {self.slept}")
        return torch.zeros(4)


def truth(folder: Path) -> float:
    """Part of the fetches that computed, by the dataset's own clock: a busy machine stretches both."""
    rows = [[float(one) for one in path.read_text().split()] for path in folder.iterdir()]
    spun, slept = (sum(column) for column in zip(*rows, strict=True))
    return spun / (spun + slept)


def ran(dataset: Dataset[Any], **options: Any) -> Recording:
    """The loop over a dataset, recorded."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = nn.Linear(4, 1)
        space = {
            "loader": DataLoader(dataset, batch_size=16, **options),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        }
        return gpu_doctor.case(CELL, space).run()
    finally:
        torch.set_num_threads(before)


def line_of(text: str) -> int:
    """The number of a line of `Culprit.__getitem__`."""
    lines, first = inspect.getsourcelines(Culprit.__getitem__)
    return first + next(i for i, line in enumerate(lines) if text in line)


METHODS = [m for m in ("fork", "spawn") if m in multiprocessing.get_all_start_methods()]


@pytest.mark.alone
@pytest.mark.parametrize(("spin_ms", "sleep_ms"), [(7.0, 3.0), (3.0, 7.0)], ids=["computes", "waits"])
@pytest.mark.parametrize("method", [None, *METHODS])
def test_the_culprit_is_first_with_its_share(
    method: str | None, spin_ms: float, sleep_ms: float, tmp_path: Path
) -> None:
    workers = 2 if method else 0
    dataset = Culprit(spin_ms * 1e-3, sleep_ms * 1e-3, tmp_path, SAMPLES)
    recording = ran(dataset, num_workers=workers, multiprocessing_context=method)
    assert not recording.notes
    found = [one for one in recording.lines if one.phase == "data_wait" and one.in_worker == bool(workers)]
    whole = 1.0 if workers else sum(one.share for one in found)
    computes, first = truth(tmp_path), found[0]
    culprit, share = ("while ", computes) if computes > 0.5 else ("time.sleep(", 1.0 - computes)
    assert first.line == line_of(culprit)
    assert first.share / whole == pytest.approx(share, abs=POINTS)
    assert (first.function, first.file) == ("__getitem__", __file__)
    assert culprit in first.text
    assert any(culprit in line and "of the fetch" in line for line in evidence(recording))


def evidence(recording: Recording) -> list[str]:
    """All that the findings say."""
    return [line for one in gpu_doctor.diagnose(recording).findings for line in one.evidence]


class Mine:
    """A stand-in for the fetch: the floor of the search, and a line below which the thread stands."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        self.page = memoryview(bytearray(LINES_BYTES))

    def fetch(self, act: Any) -> None:
        act()

    def stand(self) -> None:
        self.there.set()
        self.go.wait(10)

    def spin(self) -> None:
        self.there.set()
        while not self.go.is_set():
            sum(range(100))

    def looked(self, act: Any, looks: list[tuple[float, float]]) -> FetchLines:
        """Runs `act` in a fetch on a thread and looks at it, (period, lateness) each."""
        made: list[FetchLines] = []

        def run() -> None:
            made.append(FetchLines(self.page, Mine.fetch.__code__))
            made[0].begin()
            self.fetch(act)
            made[0].end()

        thread = threading.Thread(target=run)
        thread.start()
        assert self.there.wait(10)
        time.sleep(0.02)
        lines = made[0]
        lines.open()
        for period_s, late_s in looks:
            lines.look(period_s, late_s)
        self.go.set()
        thread.join()
        lines.write()
        return lines


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the kernel does not say who sleeps")
def test_looks_at_a_sleeping_thread_are_told_apart_and_late_ones_dropped() -> None:
    mine = Mine()
    mine.looked(mine.stand, [(0.01, 0.0), (0.01, 0.1), (0.01, 0.0)])
    active_s, blocked_s, rows = read_page(mine.page)
    assert (active_s, round(blocked_s, 6)) == (0.0, 0.02)
    assert [(place.function, round(blocked, 6)) for place, _, blocked in rows] == [("stand", 0.02)]


def test_a_late_look_at_a_computing_thread_stands_for_the_time_it_was_late() -> None:
    mine = Mine()
    mine.looked(mine.spin, [(0.01, 0.05)] * 5)
    active_s, blocked_s, rows = read_page(mine.page)
    assert active_s >= 0.06 and not blocked_s
    assert {place.function for place, _, _ in rows} == {"spin"}


def test_nothing_is_seen_outside_of_a_fetch() -> None:
    page = memoryview(bytearray(LINES_BYTES))
    lines = FetchLines(page, Mine.fetch.__code__)
    lines.look(0.01, 0.0)
    lines.write()
    assert read_page(page) == (0.0, 0.0, [])
    lines.stop()


def waited_for(come: Callable[[], bool], most_s: float = 60.0) -> None:
    """Returns when something has come, however busy the machine is."""
    until = time.perf_counter() + most_s
    while not come():
        assert time.perf_counter() < until
        time.sleep(0.001)


def test_a_thread_that_nobody_wakes_sleeps_and_ends_at_once() -> None:
    before = sys.getswitchinterval()
    lines = FetchLines(memoryview(bytearray(LINES_BYTES)), Mine.fetch.__code__, threads=50, period_s=0.01)
    lines.look = lambda period_s, late_s: True  # type: ignore[method-assign]  # a fetch runs until it has ended
    lines.start()
    lines.begin()
    waited_for(lambda: abs(sys.getswitchinterval() - LOOK_S) < 1e-6)
    lines.end()
    waited_for(lambda: lines.asleep)
    spent_s = lines.cpu_s
    assert sys.getswitchinterval() == before  # nothing is fetched: the interval is the usual one
    time.sleep(0.2)
    assert lines.cpu_s == spent_s
    lines.begin()
    lines.stop(60.0)  # the most that it waits; a thread that did not hear of it would stay
    assert sys.getswitchinterval() == before
    assert not any(thread.name == "gpu_doctor-lines" for thread in threading.enumerate())


def test_the_interval_is_left_alone_beside_threads_of_the_users_and_where_the_user_set_it() -> None:
    before = sys.getswitchinterval()
    quick = QuickLooks(threads=0)
    quick.mind()
    assert sys.getswitchinterval() == before
    quick = QuickLooks(threads=50)
    quick.mind()
    sys.setswitchinterval(0.003)
    try:
        quick.end()
        assert sys.getswitchinterval() == pytest.approx(0.003)
    finally:
        sys.setswitchinterval(before)


SUMS = Sums(
    *(10, 1.0, 0.8, 0.1, 0.1),
    queued_s=0.1,
    read_bytes=0,
    stored_bytes=0,
    on_core_s=0.7,
    stored_s=0,
)


def test_computing_and_waiting_are_shared_out_apart() -> None:
    page = memoryview(bytearray(LINES_BYTES))
    seen = {Place("a.py", 3, "f", False): [0.01, 0.0], Place("a.py", 4, "f", True): [0.0, 0.9]}
    write_page(page, 0.02, 0.9, seen)
    found = shares(page, SUMS)
    # 80 % of the fetch computed or queued, half of which was in no line of the user's
    assert {place.line: round(share, 6) for place, share in found.items()} == {3: 0.4, 4: 0.2}
    costs = line_costs([(page, SUMS)], in_worker=True)
    assert [(one.line, one.in_worker, one.in_torch, one.phase) for one in costs] == [
        (3, True, False, "data_wait"),
        (4, True, True, "data_wait"),
    ]


def test_a_page_is_bounded_goes_on_and_survives_a_writer_that_was_killed() -> None:
    page = memoryview(bytearray(LINES_BYTES))
    seen = {Place(f"/a/long/path/to/a/file/number/{i}.py", i, "f", False): [float(i), 0.0] for i in range(500)}
    seen[Place("\ttab", 1, "f", False)] = [1e9, 0.0]
    write_page(page, 1.0, 2.0, seen)
    active_s, blocked_s, rows = read_page(page)
    assert (active_s, blocked_s) == (1.0, 2.0)
    assert rows[0][0].line == 499 and 20 < len(rows) < 100
    page[:8].cast("d")[0] += 1.0  # killed half-way
    assert read_page(page) == (0.0, 0.0, [])
    write_page(page, 3.0, 2.0, {})
    assert read_page(page)[0] == 3.0


def test_own_fetches_take_the_place_of_what_the_poller_says_of_the_wait() -> None:
    def cost(line: int, phase: str, share: float) -> LineCost:
        return LineCost("cell", line, "f", "", phase, share)

    poller = [cost(1, "data_wait", 0.3), cost(2, "data_wait", 0.1), cost(3, "forward", 0.4)]
    fetches = [cost(5, "data_wait", 0.7), cost(1, "data_wait", 0.2)]
    found = with_fetches(poller, fetches, wait_s=0.8, wall_s=1.0)
    assert {one.line: round(one.share, 3) for one in found} == {5: 0.56, 1: 0.16, 2: 0.08, 3: round(0.4 * 0.2 / 0.6, 3)}
    assert with_fetches(poller, [], 0.8, 1.0) == tuple(poller)

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
from gpu_doctor.capture.fetch.tally import LINES_BYTES
from gpu_doctor.capture.lines.fetch_costs import line_costs
from gpu_doctor.capture.lines.fetch_sampler import FetchLines
from gpu_doctor.capture.lines.page import read_page, write_page
from gpu_doctor.capture.lines.places import Place
from gpu_doctor.recording import Recording

CELL = """
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
POINTS = 0.10
"""A share may be off by so much: half of what separates seven parts of ten from the half of a line not told apart."""
POINTS_HERE = 0.12
"""In the training process looks come ever more rarely: some 260, as good as 250 that stand for the same time. Their
share errs by 0.03; this is four times that."""
SAMPLES = 640
"""As many as make a worker's looks (one in 25 ms) err by 0.03, a third of `POINTS`."""


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
    shares: dict[tuple[str, int, str], float] = {}
    for one in found:
        place = one.file, one.line, one.function
        shares[place] = shares.get(place, 0.0) + one.share / whole
    first, computes = max(shares, key=lambda place: shares[place]), truth(tmp_path)
    culprit, share = ("while ", computes) if computes > 0.5 else ("time.sleep(", 1.0 - computes)
    assert first == (__file__, line_of(culprit), "__getitem__")
    assert shares[first] == pytest.approx(share, abs=POINTS if workers else POINTS_HERE)
    assert any(culprit in line and "of the fetch" in line for line in evidence(recording))


def evidence(recording: Recording) -> list[str]:
    """All that the findings say."""
    return [line for one in gpu_doctor.diagnose(recording).findings for line in one.evidence]


class Mine:
    """A stand-in for the fetch: the floor of the search, and a line below which the thread stands."""

    def __init__(self) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        self.page = memoryview(bytearray(LINES_BYTES))
        self.now_s = 0.0

    def fetch(self, act: Callable[[], None]) -> None:
        act()

    def stand(self) -> None:
        self.there.set()
        self.go.wait(10)

    def looked(self, act: Callable[[], None], fetched: bool) -> FetchLines:
        """A thread stands in an act, in a fetch or not, and is looked at twice there, 0.1 s after another."""
        made: list[FetchLines] = []

        def run() -> None:
            made.append(FetchLines(self.page, Mine.fetch.__code__, clock=lambda: self.now_s))
            if fetched:
                self.fetch(act)
            else:
                act()

        thread = threading.Thread(target=run)
        thread.start()
        assert self.there.wait(10)
        for _ in range(2):
            self.now_s += 0.1
            assert made[0].sample() is fetched
        self.go.set()
        thread.join()
        return made[0]


def test_a_look_stands_for_the_time_since_the_one_before() -> None:
    mine = Mine()
    mine.looked(mine.stand, fetched=True).write()
    whole_s, rows = read_page(mine.page)
    assert whole_s == pytest.approx(0.1), "before the first look nothing is known"
    assert [(place.function, seconds) for place, seconds in rows] == [("stand", pytest.approx(0.1))]


def test_nothing_is_seen_outside_of_a_fetch() -> None:
    mine = Mine()
    mine.looked(mine.stand, fetched=False).write()
    assert read_page(mine.page) == (0.0, [])


def waited_for(come: Callable[[], bool], most_s: float = 60.0) -> None:
    """Returns when something has come, however busy the machine is."""
    until = time.perf_counter() + most_s
    while not come():
        assert time.perf_counter() < until
        time.sleep(0.001)


def looking() -> bool:
    """Whether a thread of ours looks at fetches."""
    return any(thread.name == "gpu_doctor-lines" for thread in threading.enumerate())


@pytest.mark.parametrize("ends", ["stopped", "over"])
def test_the_thread_ends_with_the_run_and_the_switch_interval_is_as_before(ends: str) -> None:
    before, goes_on = sys.getswitchinterval(), [True]
    lines = FetchLines(memoryview(bytearray(LINES_BYTES)), Mine.fetch.__code__, lambda: goes_on[0])
    lines.start()
    waited_for(lambda: sys.getswitchinterval() < before)
    if ends == "stopped":
        lines.stop()
        lines.stop()
    goes_on[0] = False
    waited_for(lambda: not looking())
    assert sys.getswitchinterval() == before


def test_a_page_that_serves_another_run_is_not_written() -> None:
    mine, goes_on = Mine(), [True]
    lines = FetchLines(mine.page, sys._getframe().f_code, lambda: goes_on[0], clock=lambda: mine.now_s)
    for passes_s, goes_on[0] in ((0.0, True), (1.0, True), (1.0, False)):
        mine.now_s += passes_s
        assert lines.sample()
    assert read_page(mine.page)[0] == 1.0


def test_shares_are_of_the_fetch_time_of_all_workers() -> None:
    busy, idle = (memoryview(bytearray(LINES_BYTES)) for _ in range(2))
    write_page(busy, 1.0, {Place("a.py", 3, "f", False): 0.5, Place("a.py", 4, "f", True): 0.25})
    write_page(idle, 0.1, {Place("a.py", 4, "f", True): 0.1})
    costs = line_costs([(busy, 30.0), (idle, 10.0), (memoryview(bytearray(LINES_BYTES)), 5.0)])
    assert [(one.line, one.share, one.in_worker, one.in_torch, one.phase) for one in costs] == [
        (4, pytest.approx((30 * 0.25 + 10) / 40), True, True, "data_wait"),
        (3, pytest.approx(30 * 0.5 / 40), True, False, "data_wait"),
    ]


def test_a_page_is_bounded_goes_on_and_survives_a_writer_that_was_killed() -> None:
    page = memoryview(bytearray(LINES_BYTES))
    seen = {Place(f"/a/long/path/to/a/file/number/{i}.py", i, "f", False): float(i) for i in range(500)}
    seen[Place("\ttab", 1, "f", False)] = 1e9
    write_page(page, 1.0, seen)
    whole_s, rows = read_page(page)
    assert whole_s == 1.0
    assert rows[0][0].line == 499 and 20 < len(rows) < 100
    assert dict(rows) == {place: seconds for place, seconds in seen.items() if (place, seconds) in rows}
    page[:8].cast("d")[0] += 1.0  # killed half-way
    assert read_page(page) == (0.0, [])
    write_page(page, 3.0, {})
    assert read_page(page) == (3.0, [])

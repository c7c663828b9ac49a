"""A known culprit is the first line with its true share: in the cell, in a function of the cell, in `collate_fn`.

All that counts is slept and timed by the code itself, so that the truth does not depend on how fast the machine is.
Lines of `__getitem__`: see `test_fetch_lines`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import gpu_doctor
from gpu_doctor.capture import poller
from gpu_doctor.capture.lines.pace import Pace
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import LineCost, Recording

POINTS = 0.13
"""A share may be off by so much: half of what separates 0.76, the smallest of them, from the 0.5 of a line that is not
told apart from the other one."""
STEPS, BATCH = 450, 4
"""As many as make 50 looks a second err by 0.03, a quarter of `POINTS`."""
PARTS = pytest.mark.parametrize(("first_s", "second_s"), [(0.010, 0.002), (0.002, 0.010)], ids=["first", "second"])


@pytest.fixture(autouse=True)
def many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks cost more on a slow machine, and the budget makes them few: where they fall is asked here, not how many."""
    monkeypatch.setattr(poller, "look_pace", lambda: Pace(0.02, 0.5, 1.0, 1.0))
    monkeypatch.setattr(poller, "LOOKS", 1000)


class Truth:
    """Seconds by name, timed where they pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._mark = 0.0

    def start(self) -> None:
        """The loop begins now."""
        self._mark = time.perf_counter()

    def lap(self, name: str) -> None:
        """What passed since the last lap was `name`."""
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._mark
        self._mark = now

    def share(self, name: str) -> float:
        """Of all that was timed."""
        return self.seconds[name] / sum(self.seconds.values())


class Samples(IterableDataset[Any]):
    """Samples that cost nothing."""

    def __iter__(self) -> Iterator[Any]:
        return iter([torch.zeros(4)] * (STEPS * BATCH))


def ran(code: str, collate: Callable[[list[Any]], Any] | None = None, workers: int = 0, **more: Any) -> Recording:
    """The cell, recorded over a loader with this collate function."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = nn.Linear(4, 1)
        space = {
            "loader": DataLoader(Samples(), batch_size=BATCH, collate_fn=collate, num_workers=workers),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "time": time,
        }
        return gpu_doctor.case(code, space | more).run()
    finally:
        torch.set_num_threads(before)


def lengths(first_s: float, second_s: float) -> Iterator[tuple[float, float]]:
    """From a half to one and a half of both: steps that are all alike may keep time with the looks at them."""
    dice = random.Random(0)
    while True:
        yield first_s * dice.uniform(0.5, 1.5), second_s * dice.uniform(0.5, 1.5)


def evidence(recording: Recording) -> list[str]:
    """All that the findings say."""
    return [line for one in gpu_doctor.diagnose(recording).findings for line in one.evidence]


IN_THE_CELL = """
truth.start()
for x in loader:
    first_s, second_s = next(lengths)
    truth.lap("loop")
    time.sleep(first_s)
    truth.lap("time.sleep(first_s)")
    time.sleep(second_s)
    truth.lap("time.sleep(second_s)")
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
IN_A_FUNCTION = """
def augmented(x):
    time.sleep(first_s)
    truth.lap("time.sleep(first_s)")
    return x

def logged(x):
    time.sleep(second_s)
    truth.lap("time.sleep(second_s)")

truth.start()
for x in loader:
    first_s, second_s = next(lengths)
    truth.lap("loop")
    x = augmented(x)
    logged(x)
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.alone
@PARTS
@pytest.mark.parametrize("code", [IN_THE_CELL, IN_A_FUNCTION], ids=["in the cell", "in a function"])
def test_a_culprit_of_the_loop_is_first_with_its_share(code: str, first_s: float, second_s: float) -> None:
    culprit = "time.sleep(first_s)" if first_s > second_s else "time.sleep(second_s)"
    truth = Truth()
    recording = ran(code, truth=truth, lengths=lengths(first_s, second_s))
    first = measure(recording).lines[0]
    assert first.text == culprit
    assert first.share == pytest.approx(truth.share(culprit), abs=POINTS)
    function = "<module>" if code is IN_THE_CELL else "augmented" if first_s > second_s else "logged"
    assert (first.phase, first.function) == ("other", function)
    assert first.line == 1 + code.split("\n").index(next(one for one in code.split("\n") if culprit in one))
    assert any(culprit in one for one in evidence(recording))


class Collate:
    """Puts a batch together, and sleeps on two lines; writes down how long on each."""

    def __init__(self, first_s: float, second_s: float, file: Path) -> None:
        self.lengths, self.file = (first_s, second_s), file
        self.drawn: Iterator[tuple[float, float]] | None = None  # which no worker could be sent
        self.seconds, self.batches = [0.0, 0.0], 0

    def __call__(self, items: list[Any]) -> torch.Tensor:
        self.drawn = self.drawn or lengths(*self.lengths)
        self.first_s, self.second_s = next(self.drawn)
        begin = time.perf_counter()
        time.sleep(self.first_s)
        middle = time.perf_counter()
        time.sleep(self.second_s)
        self.seconds[0] += middle - begin
        self.seconds[1] += time.perf_counter() - middle
        self.batches += 1
        if self.batches == STEPS:
            self.file.write_text(" ".join(map(str, self.seconds)))
        return torch.stack(items)


CELL = """
for x in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""


@pytest.mark.alone
@PARTS
@pytest.mark.parametrize("workers", [0, 1])
def test_a_culprit_in_the_collate_is_first_with_its_share(
    workers: int, first_s: float, second_s: float, tmp_path: Path
) -> None:
    culprit = "time.sleep(self.first_s)" if first_s > second_s else "time.sleep(self.second_s)"
    file = tmp_path / "seconds"
    recording = ran(CELL, Collate(first_s, second_s, file), workers)
    slept = [float(one) for one in file.read_text().split()]
    found = [one for one in measure(recording).lines if inside(one, workers)]
    whole = 1.0 if workers else sum(one.share for one in found)
    assert found[0].text == culprit
    assert found[0].share / whole == pytest.approx(max(slept) / sum(slept), abs=POINTS)
    assert (found[0].function, found[0].file) == ("__call__", __file__)
    assert any(culprit in one and "of the fetch" in one for one in evidence(recording))


def inside(line: LineCost, workers: int) -> bool:
    """Whether a line was seen in a fetch."""
    return line.in_worker == bool(workers) and line.phase == "data_wait"

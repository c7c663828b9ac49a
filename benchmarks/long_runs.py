"""Long runs: what ten million steps cost in memory and time, whether their sums stay exact, and how fast they are read.

The recorder, step clock and step table are the real ones, and get real events; only the clock is virtual (a tick an
event) and the training is none, so that ten million steps take two to three minutes.

    python -m benchmarks.long_runs            # ten million steps
    python -m benchmarks.long_runs --quick    # a hundred thousand, to see that it runs
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpu_doctor.capture.events import (
    BACKED,
    BATCH,
    CALLED,
    CPU,
    CPU_EVERY_NS,
    DONE,
    DUE,
    GRADIENT,
    NEXT,
    STEP,
    STEPPED,
    ZERO,
    call_code,
)
from gpu_doctor.capture.recorder import Recorder
from gpu_doctor.capture.step_table import CAPACITY, StepTable
from gpu_doctor.diagnosis import diagnose
from gpu_doctor.recording import Cursor, LoaderSetup, Metric, Recording, Steps, load
from gpu_doctor.recording.steps import STEP_COLUMNS
from gpu_doctor.report import as_text
from gpu_doctor.report.sections import Reported
from tests.support.iterators import iterator

MEMORY_MB = 200.0
"""Aim: resident memory of the whole process, Python and numpy included, but not torch."""
READ_S = 2.0
"""Aim: saving, loading and diagnosing a recording of as many rows as a run keeps, together."""
TICK_NS = 1000
SAMPLES = 8
LATE_WAIT = 5
"""Further ticks that a batch takes in the second half, so that early and late rows are told apart."""
FORWARD = call_code(training=True, grad=True, trained=True)
TOLD, LEAP = 64, 32
"""The fast driver folds so many steps in a row, and one of so many in all."""


@dataclass
class Outcome:
    """What a long run gave."""

    steps: int
    mixed_steps: int
    folded: int
    """Steps whose events were folded; the rows of the others were put down again (see `Leaping`)."""
    early_us: float
    """Real microseconds a step of the first part, of the driver and the recorder together."""
    late_us: float
    mixed_us: float
    """The same where no two steps in a row are alike."""
    rss_mb: list[float] = field(default_factory=list)
    """Resident memory before, and after every twentieth of the run."""
    rows: int = 0
    stride: int = 0
    losses: int = 0
    recording: Recording | None = None
    off: list[str] = field(default_factory=list)
    """Sums that are not exact; empty = all are."""


class Driver:
    """A training loop that notes what it does on a recorder's log, on a clock that moves by one tick an event."""

    def __init__(self) -> None:
        self.now = 0
        self.recorder = Recorder(name="long run", clock=lambda: self.now)
        self.recorder.loaders["rows"] = LoaderSetup(key="rows", batch_size=SAMPLES, dataset="Rows")
        self.source = iterator()
        self.metric = Metric("cpu_util_pct", "%", "CPU", "utilization")

    def step(self, slow: int = 0, twice: bool = False) -> None:
        """One step: batch, zero_grad, forward, backward, optimizer.

        Args:
            slow: further ticks of waiting for the batch. twice: a second backward, so that the step is another one.
        """
        recorder, log, now = self.recorder, self.recorder.log, self.now
        note = log.note
        if now >= log.cpu_due_ns:
            log.cpu_due_ns = now + CPU_EVERY_NS
            note((CPU, now, log.cpu_clock()))
        log.steps += 1
        note((NEXT, now, self.source))
        if len(log.events) >= log.due:
            recorder.fold()
        now += (1 + slow) * TICK_NS
        note((BATCH, now, SAMPLES))
        note((ZERO, now + TICK_NS, None))
        note((DONE, now + 2 * TICK_NS, None))
        note((FORWARD, now + 3 * TICK_NS, None))
        note((CALLED, now + 4 * TICK_NS, None))
        now += 5 * TICK_NS
        for _ in range(1 + twice):
            loss = None
            if log.steps >= log.loss_at:
                loss = recorder.store_loss(0.5)
            note((GRADIENT, now, loss))
            note((BACKED, now + TICK_NS, None))
            now += 2 * TICK_NS
        note((STEP, now, 1 << 40))
        note((STEPPED, now + TICK_NS, 1 << 40))
        self.now = now + 2 * TICK_NS

    def run(self, steps: int, slow: int = 0, mixed: bool = False) -> float:
        """Some steps; returns real microseconds of one."""
        begin = time.perf_counter()
        for number in range(steps):
            self.step(slow, mixed and number % 2 == 1)
        return 1e6 * (time.perf_counter() - begin) / max(steps, 1)


class Repeating(StepTable):
    """A table in which the newest row may be put down again, as if the loop had gone on like that."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._newest: list[float] = []
        self._repeated_s = 0.0
        """Of the steps that were repeated: all that follow begin later by so much."""

    def append(self, row: Sequence[float]) -> int:
        """As of any table."""
        start, *others = row
        self._newest = [start + self._repeated_s, *others]
        return super().append(self._newest)

    def repeat(self, times: int) -> None:
        """The newest row, so many times more."""
        again, wall_s = self._newest.copy(), self._newest[STEP_COLUMNS.index("wall_s")]
        begin, put = again[0], super().append
        for number in range(1, times + 1):
            again[0] = begin + number * wall_s
            put(again)
        self._repeated_s += times * wall_s


class Leaping(Driver):
    """The same loop in a fraction of the time: of many steps that are alike few are folded, all have their row."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.recorder.table = Repeating(self.recorder.table._capacity)

    def run(self, steps: int, slow: int = 0, mixed: bool = False) -> float:
        """As Driver's."""
        begin, left = time.perf_counter(), steps
        while left:
            told = left if mixed else min(left, TOLD)
            super().run(told, slow, mixed)
            left -= told
            if left:
                self.recorder.fold()
                again = min(left, TOLD * (LEAP - 1))
                self.table.repeat(again)
                left -= again
        return 1e6 * (time.perf_counter() - begin) / max(steps, 1)


def long_run(steps: int, mixed_steps: int, parts: int = 20, leaping: bool = False) -> Outcome:
    """Runs `steps` that repeat, the second half of them slower, then `mixed_steps` of which no two in a row are alike.

    A view reads the news at every part's end, and a probe reads its metric; `leaping`: by a faster driver.
    """
    driver = Leaping() if leaping else Driver()
    recorder, part = driver.recorder, steps // parts
    rss, costs, cursor = [resident_mb()], [], Cursor()
    seen_steps = 0.0
    for number in range(parts):
        costs.append(driver.run(part, LATE_WAIT if 2 * number >= parts else 0))
        news = recorder.news(cursor)
        cursor = news.cursor
        seen_steps = float(news.steps.count.sum()) + (0.0 if news.reset else seen_steps)
        recorder.readings.add(driver.metric, recorder.elapsed_s(), float(number))
        rss.append(resident_mb())
    stride = recorder.table.stride
    mixed_us = driver.run(mixed_steps, LATE_WAIT, mixed=True)
    rss.append(resident_mb())
    recording = recorder.close()
    rss.append(resident_mb())
    done = Outcome(steps, mixed_steps, recorder.step_count, costs[1], costs[-1], mixed_us, rss)
    done.losses, done.recording = len(recording.losses.value), recording
    done.rows, done.stride = len(recording.steps), recorder.table.stride
    done.off = inexact(recording.steps, part * parts, mixed_steps)
    # What was not folded yet, and the open part of a row, comes with the next news.
    if not part * parts - DUE - stride <= seen_steps <= part * parts:
        done.off.append(f"a view that follows saw {seen_steps:.0f} of {part * parts} steps")
    return done


def inexact(steps: Steps, plain: int, mixed: int) -> list[str]:
    """The sums of a long run that are not what the loop did, in words; empty if all are exact.

    Times are sums of floats: exact to a nanosecond a row.
    """
    half = plain // 2
    total = plain + mixed
    # ticks: ask -> delivered, -> zeroing and back, forward and back, backward and back, optimizer and back; the slow
    # ones wait LATE_WAIT more; the last step ends at its optimizer's end.
    expected = {
        "count": total,
        "samples": total * SAMPLES,
        "batches": total,
        "data_wait_s": (total + (plain - half + mixed) * LATE_WAIT) * TICK_NS * 1e-9,
        "forward_s": total * TICK_NS * 1e-9,
        "backward_s": (total + mixed // 2) * TICK_NS * 1e-9,
        "optimizer_s": 2 * total * TICK_NS * 1e-9,
    }
    off = []
    for name, value in expected.items():
        got = math.fsum(getattr(steps, name))
        if abs(got - value) > (0 if name in ("count", "samples", "batches") else 1e-9 * len(steps)):
            off.append(f"{name}: {got!r} instead of {value!r}")
    parts = math.fsum(math.fsum(getattr(steps, f"{name}_s")) for name in ("data_wait", "forward", "backward"))
    parts += math.fsum(steps.optimizer_s) + math.fsum(steps.other_s)
    wall = math.fsum(steps.wall_s)
    if abs(parts - wall) > 1e-9 * len(steps):
        off.append(f"the phases sum to {parts!r} of {wall!r} s")
    ends = steps.start_s + steps.wall_s
    if len(steps) > 1 and np.abs(ends[:-1] - steps.start_s[1:]).max() > 1e-6:
        off.append("rows do not touch")
    # early and late are both there, and apart: the first half's rows wait one tick a step, the later ones more
    waits = steps.data_wait_s / steps.count
    done = np.cumsum(steps.count)
    early, late = waits[done <= half], waits[done - steps.count >= half]
    tick = TICK_NS * 1e-9
    if not len(early) or not len(late) or abs(early - tick).max() > 1e-9:
        off.append("the early rows are not as they were")
    elif abs(late - (1 + LATE_WAIT) * tick).max() > 1e-9:
        off.append("the late rows are not as they were")
    return off


def resident_mb() -> float:
    """Resident memory of this process now, in MB; NaN where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return math.nan
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def most_resident_mb() -> float:
    """The most memory that was ever resident in this process, in MB; NaN where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return math.nan
    # Not ru_maxrss: that is also the parent's, where the process was forked from a larger one.
    return next((float(line.split()[1]) * 1024 / 1e6 for line in status.splitlines() if "VmHWM" in line), math.nan)


def single_rows(steps: int, seed: int = 0) -> Recording:
    """A recording of so many steps with a row each, with times as noisy as real ones, which compress badly."""
    random = np.random.default_rng(seed)
    spent = {name: random.gamma(9.0, 1e-3 / 9, steps) for name in ("data_wait", "forward", "backward", "optimizer")}
    columns = {f"{name}_s": values for name, values in spent.items()}
    wall = sum(spent.values()) + random.gamma(9.0, 1e-5, steps)
    epoch = np.arange(steps) // 5000
    zeros = {name: np.zeros(steps) for name in STEP_COLUMNS if name in ("transfer_s", "evaluation_s", "loss_s")}
    table = Steps.of(
        wall_s=wall, samples=np.full(steps, 32.0), batches=np.ones(steps), epoch=epoch, cpu_s=wall, **columns, **zeros
    )
    return Recording(steps=table, duration_s=float(wall.sum()), overhead_s=0.001 * float(wall.sum()))


def reading_s(recording: Recording) -> dict[str, float]:
    """Seconds of saving, loading and diagnosing, and of the report of the diagnosis as text; and the file's MB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        timed = {"save": _took(lambda: recording.save(path))}
        size = path.stat().st_size / 1e6
        timed["load"] = _took(lambda: load(path))
    timed["diagnose"] = _took(lambda: diagnose(recording))
    diagnosis = diagnose(recording)
    timed["report"] = _took(
        lambda: (as_text.text(Reported(diagnosis, (recording,))), as_text.html(Reported(diagnosis, (recording,))))
    )
    return {**timed, "MB": size}


def _took(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def best_of(rounds: int, work: Callable[[], object]) -> float:
    """The shortest of some rounds, in seconds: what the work takes where nothing else runs."""
    return min(_took(work) for _ in range(rounds))


def main() -> None:
    """Prints what a long run costs."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--steps", type=int, default=10_000_000, help="steps that repeat")
    options.add_argument("--mixed", type=int, default=500_000, help="steps after them that do not")
    options.add_argument("--quick", action="store_true", help="a hundredth of both")
    given = options.parse_args()
    shrunk = 100 if given.quick else 1
    done = long_run(given.steps // shrunk, given.mixed // shrunk)
    top = max(done.rss_mb)
    print(f"{done.steps:,} steps that repeat and {done.mixed_steps:,} that do not")
    print(f"rows kept: {done.rows:,}, {done.stride} steps each; losses kept: {done.losses:,}")
    print(f"resident memory: {done.rss_mb[0]:.0f} MB before, {top:.0f} MB at most (aim without torch: {MEMORY_MB:.0f})")
    print(f"a step: {done.early_us:.2f} us early, {done.late_us:.2f} us late; no two alike {done.mixed_us:.2f} us")
    print(f"sums: {'; '.join(done.off) or 'exact; early and late rows are as they were'}")
    assert done.recording is not None
    print(f"\n{'recording':<34} {'rows':>9} {'save s':>8} {'load s':>8} {'diagnose s':>11} {'report s':>9} {'MB':>7}")
    for name, one in (
        ("the long run", done.recording),
        ("a full table, a step a row", single_rows(CAPACITY // shrunk)),
        ("10,000 steps, a row each", single_rows(10_000)),
    ):
        cost = reading_s(one)
        figures = f"{cost['save']:8.3f} {cost['load']:8.3f} {cost['diagnose']:11.4f} {cost['report']:9.3f}"
        print(f"{name:<34} {len(one.steps):>9,} {figures} {cost['MB']:7.1f}")
    few = single_rows(10_000)
    print(f"\ndiagnosing 10,000 steps, best of 5: {1e3 * best_of(5, lambda: diagnose(few)):.1f} ms (aim: 50 ms)")


if __name__ == "__main__":
    main()

"""What is measured, a part at a time."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from playwright.sync_api import Page

from benchmarks.panel import cells, kernels
from benchmarks.panel.looks import CPU, WALL, Numbers, mean_within, nobodys, taken
from benchmarks.panel.page import Watched
from benchmarks.panel.row import Row
from gpu_doctor.notebook.widget import DoctorView
from tests.support.lab import Lab
from tests.support.real_kernel import Kernel

LOOK_S: Final = 2.0
FIRST_RUNS: Final = 20
PAINTS: Final = 9
VIEW_CPU: Final = (
    "[*__import__('gpu_doctor.notebook.open_panels', fromlist=['_open'])._open.values()][-1].__self__.panel.cpu_s"
)
"""In the kernel: CPU seconds of the newest panel's refreshing."""


def load(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """A loop of so many steps a second, with the panel and, for comparison, a shorter one without."""
    seconds = 60 * options.minutes
    texts = [cells.paced(options.rate, min(seconds, 30), view=False), cells.paced(options.rate, seconds)]
    one = Watched(lab, page, "load.ipynb", [cells.SETUP, cells.some_steps(40), *texts])
    begin = one.now()
    one.notebook.run_cell(2, wait_s=seconds + 60)
    without = [task[1] for task in one.since("tasks", begin)]
    before = one.heap_mb(), one.kernel_mb()
    begin = one.now()
    cpu, sizes = _ran(one, 3, seconds + 60)
    sent, spent_s = _after_first_row(one, begin)
    after = one.heap_mb(), one.kernel_mb()
    view_s = float(one.notebook.kernel_value(VIEW_CPU))
    return [
        Row("load", "steps a second that the loop made", one.printed(3, "rate")[0], "1/s"),
        *_tasks("load", one, begin, cpu),
        Row("load", "longest task without a panel (a shorter run); wall", max(without, default=0.0), "ms"),
        Row("load", "messages after the first row", sent / spent_s / 1e3, "kB/s", 2),
        Row("load", "CPU of the view's threads, of the loop's time", 100 * view_s / seconds, "%", 1),
        *_memory("load", before, after, sizes),
    ]


def million(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """A loop of very many steps."""
    one = Watched(lab, page, "million.ipynb", [cells.SETUP, cells.some_steps(40), cells.many(options.steps)])
    before = one.heap_mb(), one.kernel_mb()
    begin = one.now()
    cpu, sizes = _ran(one, 2, 600)
    sent, spent_s = _after_first_row(one, begin)
    after = one.heap_mb(), one.kernel_mb()
    return [
        Row("million", f"steps a second, of {options.steps:,}", one.printed(2, "rate")[0], "1/s"),
        *_tasks("million", one, begin, cpu),
        Row("million", "messages after the first row", sent / spent_s / 1e3, "kB/s", 2),
        *_memory("million", before, after, sizes),
    ]


def added(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """What the view takes from the watched loop, look by look, in a kernel whose messages another process reads."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        kernel = Kernel(Path(folder))
        try:
            kernel.run(cells.SETUP)
            kernel.run(cells.some_steps(40), cell="c")
            kernel.run(cells.LOOKS)
            for _ in range(options.times):
                kernel.run(cells.sliced(options.seconds), cell="c")
                said = json.loads(kernel.run("import json; print(json.dumps([slices, looks]))"))
                runs.append((np.array(said[0]), np.array(said[1])))
        finally:
            kernel.close()
    return added_rows(runs)


def added_rows(runs: list[tuple[Numbers, Numbers]]) -> list[Row]:
    """The rows of `added`.

    Args:
        runs: of each its slices, as `looks.taken` takes them, and begin, end and CPU seconds of its looks.
    """
    ran_s = sum(slices[-1, 0] - slices[0, 0] for slices, _ in runs)
    count = sum(len(looks) for _, looks in runs)
    percent = 100 * count / ran_s
    view = 100 * sum(float(looks[:, 2].sum()) for _, looks in runs) / ran_s
    rows = [
        Row("added", "looks of the view in a second", count / ran_s, "1/s"),
        Row("added", "CPU of the view's own thread, of the loop's time", view, "%"),
    ]
    for name, clock in (("wall", WALL), ("CPU of its thread", CPU)):
        found = np.concatenate([taken(slices, looks[:, :2], clock) for slices, looks in runs])
        chance = np.concatenate([taken(slices, nobodys(looks[:, :2]), clock) for slices, looks in runs])
        for who, values in (("looks add", found), ("looks that nobody took add", chance)):
            mean, low, high = (percent * one for one in mean_within(values))
            rows.append(Row("added", f"the loop's {name}: {who} ({low:.2f} to {high:.2f})", mean, "%"))
    both = view + percent * mean_within(found)[0]
    rows.append(Row("added", "CPU of both threads", both, "%", 1))
    return rows


def weight(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """Bytes of a panel, and how soon it is seen, in a kernel and a page that had one before."""
    one = Watched(lab, page, "weight.ipynb", [cells.SETUP, cells.some_steps(40), cells.paced(200, 1.5)])
    one.notebook.run_cell(2, wait_s=60)
    sizes, painted = [], []
    for _ in range(PAINTS):
        begin = one.now()
        page.evaluate("bench.painted()")
        one.notebook.run_cell(2, wait_s=60)
        painted.append(page.evaluate("window.painted"))
        frames = one.since("frames", begin)
        first = next(at for at, frame in enumerate(frames) if frame[3])
        sizes.append(sum(frame[1] for frame in frames[:first]) / 1e3)
    static = [
        len(html.encode()) / 1e3
        for output in one.notebook.outputs(2)
        if "gpu-doctor-static" in (html := "".join(output.get("data", {}).get("text/html", "")))
    ]
    rows = [
        Row("weight", "a panel's script", len(str(DoctorView._esm).encode()) / 1e3, "kB", 80),
        Row("weight", "a panel's style sheet", len(str(DoctorView._css).encode()) / 1e3, "kB"),
        Row("weight", f"messages before a later run's first row, most of {PAINTS} runs", max(sizes), "kB", 100),
        Row("weight", "static result", max(static), "kB", 100),
    ]
    for key, what, aim in (
        ("text", "first paint after the cell's start", 300),
        ("plots", "plots drawn after the cell's start", None),
        ("clicked", "first paint after the click", None),
    ):
        rows.append(Row("weight", f"{what}, median of {PAINTS}", _mid([run[key] for run in painted]), "ms", aim))
    return rows


def again(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """One cell run again and again."""
    one = Watched(lab, page, "again.ipynb", [cells.SETUP, cells.some_steps(40), cells.some_steps(150)])
    before = math.nan
    first = min(FIRST_RUNS, options.runs // 2)
    for number in range(1, options.runs + 1):
        one.notebook.run_cell(2, wait_s=60)
        if number in (first, options.runs):
            page.wait_for_timeout(1500)
            before, after = one.heap_mb(), before
        if number % 20 == 0:
            print(f"  run {number}: page {one.heap_mb():.1f} MB")
    between = f"grown from run {first} to {options.runs}"
    return [
        Row("again", f"page heap, {between}", before - after, "MB", 20),
        Row("again", "page heap at the end", before, "MB"),
    ]


PARTS: Final[dict[str, Callable[[Lab, Page, argparse.Namespace], list[Row]]]] = {
    "first": kernels.first,
    "kept": kernels.kept,
    "load": load,
    "million": million,
    "added": added,
    "weight": weight,
    "again": again,
}


def _ran(one: Watched, cell: int, limit_s: float) -> tuple[list[float], list[float]]:
    """Runs a cell to its end; meanwhile CPU ms of the page's tasks, and MB of the kernel now and then."""
    before, sizes, until = one.notebook.execution_count(cell), [], time.monotonic() + limit_s

    def run() -> None:
        one.notebook.run_cell(cell)
        while one.notebook.execution_count(cell) in (before, None) and time.monotonic() < until:
            one.page.wait_for_timeout(1000 * LOOK_S)
            sizes.append(one.kernel_mb(collect=False))
        one.notebook.wait_ran(cell, before, limit_s)
        one.page.wait_for_timeout(1500)

    return one.traced(run), sizes


def _after_first_row(one: Watched, begin: float) -> tuple[int, float]:
    """Bytes of all messages after the first row until the cell's end, and the seconds between."""
    frames = one.since("frames", begin)
    rows = [at for at, frame in enumerate(frames) if frame[3]]
    if len(rows) < 3:
        raise RuntimeError("The panel was sent hardly a row: nothing was measured.")
    # The last message but the closing ones: what is written down at the end is no stream.
    part = frames[rows[0] + 1 : rows[-2] + 1]
    return sum(frame[1] for frame in part), (part[-1][0] - frames[rows[0]][0]) / 1e3


def _tasks(part: str, one: Watched, begin: float, cpu: list[float]) -> list[Row]:
    """The tasks of the page's thread, whoever's they are; the longest scripts among them are printed."""
    wall = [task[1] for task in one.since("tasks", begin)]
    for start, took, what in sorted(one.since("scripts", begin), key=lambda script: -script[1])[:5]:
        print(f"  {part}: a script of {took:.0f} ms, {(start - begin) / 1e3:.1f} s after the begin: {what}")
    return [
        Row(part, "longest task of the page, whoever's; CPU", max(cpu), "ms", 50),
        Row(part, "longest task of the page; wall", max(wall, default=0.0), "ms"),
        Row(part, "tasks above 100 ms of wall", sum(task > 100 for task in wall), ""),
    ]


def _memory(part: str, before: tuple[float, float], after: tuple[float, float], sizes: list[float]) -> list[Row]:
    return [
        Row(part, "page heap before, garbage collected", before[0], "MB"),
        Row(part, "page heap after", after[0], "MB"),
        Row(part, "kernel memory before, garbage collected", before[1], "MB"),
        Row(part, "kernel memory, half of the run done", sizes[len(sizes) // 2], "MB"),
        Row(part, "kernel memory, most while it ran", max(sizes), "MB"),
        Row(part, "kernel memory after", after[1], "MB"),
    ]


def _mid(values: list[float]) -> float:
    return statistics.median(values)

"""What the panel costs in a kernel, heard by a front end without a page: the first run, memory, bytes of messages."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from benchmarks.panel import cells
from benchmarks.panel.page import written_mb
from benchmarks.panel.row import Row
from tests.support.lab import Lab
from tests.support.real_kernel import Kernel

TYPING_S: Final = 4.0
"""So long a person writes the cell that follows `%load_ext`."""
SOCKETS_S: Final = 11.0
"""ipykernel closes a socket that an ended thread has left within ten seconds."""
WARM: Final = 20
"""Runs before memory is compared: by then as many panels are open as may be."""

LIVE: Final = "print(tracemalloc.get_traced_memory()[0])"
"""Says the bytes of Python's objects and of arrays."""


@contextmanager
def a_kernel() -> Iterator[Kernel]:
    """A fresh kernel."""
    with tempfile.TemporaryDirectory() as folder:
        one = Kernel(Path(folder))
        try:
            yield one
        finally:
            one.close()


def first(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """The first diagnosed cell of a fresh kernel beside the same cell alone, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        before = {name: os.environ.get(name, "") for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
        os.environ.update(PYTHONDONTWRITEBYTECODE="", PYTHONPYCACHEPREFIX=folder)
        try:
            _first_run("%%gpudoctor", 0.0)  # writes the byte code, which an installed package has
            kinds = (("", TYPING_S), ("%%gpudoctor", TYPING_S), ("%%gpudoctor", 0.0), ("", 0.0))
            turns = [[_first_run(*kind) for kind in kinds] for _ in range(options.kernels)]
        finally:
            os.environ.update(before)

    def over(number: int, clock: int) -> float:
        return statistics.median(turn[number][clock] - turn[0][clock] for turn in turns)

    return [
        Row("first", f"first run over the bare cell, {TYPING_S:g} s after %load_ext; wall", over(1, 0), "s", 0.9),
        Row("first", "CPU of the kernel's main thread", over(1, 1), "s"),
        Row("first", "first run over the bare cell, the cell after %load_ext; wall", over(2, 0), "s"),
        Row("first", "an ordinary cell, the cell after %load_ext, over a later one; wall", over(3, 0), "s"),
    ]


def _first_run(magic: str, pause_s: float) -> tuple[float, float]:
    """Wall and main thread's CPU seconds of a fresh kernel's first training cell."""
    with a_kernel() as kernel:
        kernel.run(cells.SETUP)
        kernel.run(cells.CLOCKS)
        time.sleep(pause_s)
        body = cells.some_steps(40).partition("\n")[2]
        kernel.run(f"{magic}\n{body}" if magic else body, cell="c")
        wall, cpu = json.loads(kernel.run("print(clocks[-2])"))
        return wall, cpu


def kept(lab: Lab, page: Page, options: argparse.Namespace) -> list[Row]:
    """Memory that runs leave in the kernel, and what one cell after the other that is deleted leaves."""
    few, many = (4, 8) if options.quick else (WARM, 3 * WARM)
    looks = (4, 14, few, many)
    live, live_gone = (_runs(looks, gone, LIVE) for gone in (False, True))
    written, written_gone = (_runs(looks, gone, "") for gone in (False, True))
    runs = f"a run, {few} to {many} runs of"
    return [
        Row("kept", f"live objects {runs} as many cells", _slope(live, few, many), "kB", 100),
        Row("kept", "live objects of a panel that stays open, with its recording", _slope(live, 4, 14), "kB"),
        Row("kept", f"live objects {runs} cells that are gone", _slope(live_gone, few, many), "kB", 10),
        Row("kept", f"kernel memory {runs} as many cells", _slope(written, few, many), "kB", 100),
        Row("kept", f"kernel memory {runs} cells that are gone", _slope(written_gone, few, many), "kB"),
    ]


def _slope(sizes: dict[int, float], begin: int, end: int) -> float:
    """kB a run."""
    return (sizes[end] - sizes[begin]) / (end - begin) if {begin, end} <= sizes.keys() else float("nan")


def _runs(looks: tuple[int, ...], gone: bool, traced: str) -> dict[int, float]:
    """kB of memory by the number of runs.

    Args:
        looks: after how many runs.
        gone: each cell is deleted before the next one runs.
        traced: says in the kernel how much its objects are; empty = all that the kernel has written, where the
            allocator's stock is in, which differs with the machine's load.
    """
    sizes = {}
    with a_kernel() as kernel:
        kernel.run(cells.SETUP)
        pid = int(kernel.run("import gc, os, tracemalloc; print(os.getpid())"))
        kernel.run("tracemalloc.start()" if traced else "")
        for number in range(1, max(looks) + 1):
            kernel.run(cells.some_steps(150), cell=f"c{number}", deleted=[f"c{number - 1}"] if gone else [])
            if number in looks:
                time.sleep(SOCKETS_S)
                said = kernel.run(f"gc.collect(); {traced}", cell="memory")
                sizes[number] = int(said) / 1e3 if traced else 1e3 * written_mb(pid)
    return sizes

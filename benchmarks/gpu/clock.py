"""Compares the device clock's shares with what torch.profiler (Kineto) and GPM 1 say of the same steps."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch.profiler import ProfilerActivity, profile, record_function

import gpu_doctor
from benchmarks.gpu.gpm import COMPUTE, Between
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.loops import Loop, filled
from benchmarks.gpu.programs import CLOCKED
from benchmarks.gpu.timing import as_it_was, synchronize, with_fork
from tests.support.device_truth import Spans, common, length, united

POINTS: Final = 0.03
"""The aim: shares of the device's time differ by no more."""
WARM, STEPS, AFTER = 8, 30, 4
FEWEST: Final = 3
"""So many traced steps in a row must be marked on the device."""
WAIT: Final = "wait"
COLUMNS: Final = {
    "exposed wait": "exposed_wait_s",
    "exposed copies": "exposed_transfer_s",
    "gap": "gpu_gap_s",
    "busy": "gpu_s",
}
KEPT: Final = "starved loader"
"""The trace of this program is kept: it is the smallest."""


def run(stage: Stage) -> None:
    """Compares each program."""
    with_fork()
    stage.run({one.name: partial(beside, stage, one) for one in CLOCKED})


class Asked:
    """Asks a loader for its batches in regions of the profiler; `at` hears the number of each."""

    def __init__(self, loader: Any, at: Callable[[int], None]) -> None:
        self._loader, self._at = loader, at

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self._loader)
        for number in range(len(self._loader)):
            self._at(number)
            with record_function(f"{WAIT} {number}"):
                batch = next(batches)
            yield batch


def beside(stage: Stage, one: Loop) -> Row:
    """Runs a program under watch() and traces the steps in its midst."""
    kinds = [ProfilerActivity.CPU, *([] if stage.rehearse else [ProfilerActivity.CUDA])]
    kineto, compute, active = profile(activities=kinds), list[Between](), list[float | None]()
    above = filled(one.above, stage.device, WARM + STEPS + AFTER, not stage.rehearse)

    def at(number: int) -> None:
        if number == WARM * micro:
            synchronize(stage.device)
            kineto.start()
            compute.append(Between())
        if number == (WARM + STEPS) * micro:
            synchronize(stage.device)
            active.append(compute[0].read([COMPUTE]).get(COMPUTE))
            kineto.stop()

    with as_it_was(stage.device) as names:
        exec(compile(above, "<above>", "exec"), names)
        micro = len(names["loader"]) // (WARM + STEPS + AFTER)
        names["loader"] = Asked(names["loader"], at)
        with gpu_doctor.watch() as seen:
            exec(compile(one.cell, "<cell>", "exec"), names)
    assert seen.recording is not None
    stage.record(one.name, seen.recording)
    events = exported(kineto, stage.work / "trace.json" if one.name == KEPT else None)
    steps = seen.recording.steps.rows(WARM, WARM + STEPS)
    first, end = longest(np.isfinite(steps.gpu_gap_s))
    theirs = truth(events, micro, first, end)
    said = compared(shares(steps.rows(first, end)), theirs, active[0], one.klass != "host")
    said["figures"] |= {"events": len(events), "steps": end - first}
    return said


def longest(timed: Any) -> tuple[int, int]:
    """Finds the longest row of timed steps; the first and the last one hold our synchronizing."""
    found, began = (1, 1), 1
    for at in range(1, len(timed)):
        if at == len(timed) - 1 or not timed[at]:
            found, began = max(found, (began, at), key=lambda one: one[1] - one[0]), at + 1
    return found


def shares(steps: Any) -> dict[str, float]:
    """Adds up our columns as shares of the device's time; empty if too few steps were timed."""
    if len(steps) < FEWEST:
        return {}
    whole_s = float((steps.gpu_gap_s + steps.gpu_s).sum())
    return {name: float(np.nansum(getattr(steps, column))) / whole_s for name, column in COLUMNS.items()}


def exported(kineto: Any, kept: Path | None) -> list[dict[str, Any]]:
    """Reads the trace's events from the file that the profiler writes: its form has not changed for years."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        kineto.export_chrome_trace(str(path))
        if kept is not None:
            shutil.copyfile(path, kept)
        return list(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def truth(events: Iterable[Mapping[str, Any]], micro: int, first: int, end: int) -> dict[str, float]:
    """Adds up the same shares of the steps `first` to before `end` from a trace; empty where it has no kernels.

    A kernel belongs to the step in which it was launched, and a step begins where the loop asks for its batch. A step
    lasts from the end of the work of the one before to the end of its own.
    """
    begins, waits, copies, kernels, launched = [], [], [], [], dict[Any, float]()
    for one in events:
        kind, name = str(one.get("cat", "")).lower(), str(one.get("name", ""))
        if one.get("ph") != "X":
            continue
        span, known = (float(one["ts"]), float(one["ts"]) + float(one["dur"])), one.get("args", {}).get("correlation")
        if kind == "user_annotation" and name.startswith(WAIT):
            waits.append(span)
            begins += [] if int(name.split()[-1]) % micro else [span[0]]
        elif kind in ("cuda_runtime", "cuda_driver") and known is not None:
            launched[known] = span[0]
        elif kind in ("gpu_memcpy", "kernel", "gpu_memset"):
            (copies if "HtoD" in name or "DtoH" in name else kernels).append((*span, known))
    if not kernels or end - first < FEWEST:
        return {}
    steps = np.searchsorted(np.sort(begins), [launched.get(known, at) for at, _, known in kernels], "right") - 1
    return _shares(_spans(waits), _spans(copies), _spans(kernels), steps, range(first - 1, end))


def _shares(waits: Spans, copies: Spans, kernels: Spans, steps: Any, numbers: Iterable[int]) -> dict[str, float]:
    of = [kernels[steps == number] for number in numbers]
    first, last = np.asarray([[one[:, 0].min(), one[:, 1].max()] for one in of]).T
    stretch = np.asarray([[last[0], last[-1]]])
    gaps = np.column_stack([last[:-1], first[1:]])
    gaps = united(gaps[gaps[:, 1] > gaps[:, 0]])
    busy, copied = common(stretch, united(kernels)), common(stretch, united(copies))
    waited = common(stretch, united(waits))
    both = united(np.concatenate([busy, copied]))
    found = {
        "exposed wait": length(waited) - length(common(waited, both)),
        "exposed copies": length(common(copied, gaps)),
        "gap": length(gaps),
        "busy": length(busy),
    }
    return {name: one / length(stretch) for name, one in found.items()}


def _spans(found: Iterable[tuple[Any, ...]]) -> Spans:
    return np.asarray([one[:2] for one in found], dtype=np.float64).reshape(-1, 2)


def compared(ours: Mapping[str, float], theirs: Mapping[str, float], active: float | None, solid: bool) -> Row:
    """Judges our shares by Kineto's; busy is an upper bound where a step has pauses inside."""
    told = []
    for name in COLUMNS:
        one, other = (f"{100 * found[name]:.1f} %" if name in found else "?" for found in (ours, theirs))
        told.append(f"{name} {one} (Kineto {other})")
    told.append("GPM 1 is not told" if active is None else f"GPM 1 {active:.1f} %")
    off = {name: ours[name] - theirs[name] for name in theirs if name in ours}
    good = all(abs(one) <= POINTS or (name in ("busy", "gap") and not solid and one > 0) for name, one in off.items())
    figures = {"ours": dict(ours), "kineto": dict(theirs), "gpm": active, "off": off}
    return row(", ".join(told), good and bool(off), **figures)

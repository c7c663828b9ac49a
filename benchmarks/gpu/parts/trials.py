"""Trials whose truth is known by the bare clock: equal sides, copies that the device's speed hides, a known gain.

The host is through with a loop before the device is: a trial that timed the launching would tell other rates than the
bare loop has from synchronised start to synchronised end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import gpu_doctor
from benchmarks.gpu.bare import as_it_was, step_s, with_fork
from benchmarks.gpu.cells import BUSY, HEAD, LOOP, PLAIN
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.rows_for import rows_for
from benchmarks.gpu.timing import gain, in_turns

WITHIN: Final = 0.05
"""Of the truth, rates and gains that a trial measures."""
BATCH: Final = 32
SLEEPS: Final = "DataLoader(Rows(32 * steps, ms=0.5, sleeps=True), batch_size=32)"
WAITS: Final = LOOP.replace(", non_blocking=True", "")


def run(stage: Stage) -> None:
    """A row a trial."""
    with_fork()
    rows = stage.rows.get("size of the net", {}).get("figures", {}).get("rows") or rows_for(stage.device)
    stage.row("size of the net", partial(row, f"{rows} rows a step", None, rows=rows))
    copies: dict[str, Any] = {"non_blocking": True}
    slow = rows * stage.size(5, 1)
    stage.row("equal sides", partial(tried, stage, PLAIN, LOOP, LOOP, {}, rows, "no-difference"))
    stage.row(
        "copies of a loop that keeps the device busy",
        partial(tried, stage, PLAIN, WAITS, LOOP, copies, slow, "no-difference"),
    )
    stage.row(
        "a loader with workers",
        partial(tried, stage, HEAD + BUSY + f"loader = {SLEEPS}\n", LOOP, LOOP, {"num_workers": 4}, rows, "faster"),
    )


def tried(
    stage: Stage, above: str, cell: str, changed: str, settings: Mapping[str, Any], rows: int, verdict: str
) -> Row:
    """One trial, and the same two loops by the bare clock, in turns."""
    steps = stage.size(80, 12)
    before = above.replace("DEVICE", stage.device).replace("STEPS", str(steps)).replace("ROWS", str(rows))
    better = before
    if "num_workers" in settings:
        better = before.replace(SLEEPS, f"{SLEEPS[:-1]}, num_workers={settings['num_workers']})")
    found = in_turns(
        {
            "as written": lambda: step_s(before, cell, stage.device, steps),
            "changed": lambda: step_s(better, changed, stage.device, steps),
        },
        stage.size(3, 2),
    )
    true = gain(found["as written"], found["changed"])
    long = before.replace(f"steps = {steps}", f"steps = {10 * steps}")
    names: dict[str, Any] = {"__name__": "__main__"}
    with as_it_was(stage.device):
        exec(compile(long, "<above>", "exec"), names)
        case = gpu_doctor.case(cell, names)
        effect = case.trial(settings, steps=stage.size(60, 6), seconds=8.0 if not stage.rehearse else 2.0)
        names.clear()
    return judged(effect, true, found, verdict, stage.rehearse)


def judged(effect: Any, true: float, found: Mapping[str, Any], verdict: str, rehearse: bool) -> Row:
    """The trial beside the bare clock: its verdict, its gain, and the rate of the loop as written."""
    bare_rate = BATCH / sorted(found["as written"])[len(found["as written"]) // 2]
    rate = effect.baseline_samples_per_s
    said = f"{effect.verdict or effect.outcome}: {effect}; bare {true:.3f}x"
    if rate is None or effect.speedup is None:
        return row(f"{said}; {effect.reason}", None if rehearse else False, true=true, **effect.to_dict())
    said += f"; as written {rate:.0f} samples/s, bare {bare_rate:.0f}"
    good = (
        effect.verdict == verdict and abs(effect.speedup / true - 1) <= WITHIN and abs(rate / bare_rate - 1) <= WITHIN
    )
    return row(said, None if rehearse else good, true=true, bare_rate=bare_rate, bare_s=found, **effect.to_dict())

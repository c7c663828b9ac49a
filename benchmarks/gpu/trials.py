"""Holds trials against the bare clock: equal sides, workers, half precision and compile, by knob and by hand."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import gpu_doctor
from benchmarks.gpu.diagnoses import bare
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.loops import HEALTHY, IN_FP16, LOOP, LOOPS, SCALER, Loop, filled
from benchmarks.gpu.timing import as_it_was, gain, with_fork

WITHIN: Final = 0.10
"""A trial's gain may differ so much from the bare clock's."""
SICK: Final = {one.key: one for one in LOOPS}
FULL: Final = SICK["full-precision"]
EQUAL: Final = replace(SICK[HEALTHY], cured=LOOP)
FP16: Final = replace(FULL, better=FULL.above + SCALER, cured=IN_FP16)
Trial = tuple[Loop, Mapping[str, Any], str]
"""A trial has a loop with its change by hand, the same by knob, and the verdict; empty = any."""
FIRST: Final[dict[str, Trial]] = {
    "equal sides": (EQUAL, {}, "no-difference"),
    "a loader with workers": (SICK["slow-storage"], {"num_workers": 8}, "faster"),
    "bf16 by knob and by hand": (FULL, {"amp": "bf16"}, "faster"),
}
SECOND: Final[dict[str, Trial]] = {
    "fp16 by knob and by hand": (FP16, {"amp": "fp16"}, "faster"),
    "compile by knob and by hand": (SICK["not-compiled"], {"compile": True}, ""),
}


def run(stage: Stage, trials: Mapping[str, Trial] = FIRST) -> None:
    """Tries each of them."""
    with_fork()
    stage.run({name: partial(tried, stage, *trial) for name, trial in trials.items()})


def precision(stage: Stage) -> None:
    """Tries those of the second call."""
    run(stage, SECOND)


def tried(stage: Stage, loop: Loop, settings: Mapping[str, Any], verdict: str) -> Row:
    """Makes one trial, and times the same two loops by the bare clock."""
    steps = stage.size(60, 10)
    found = bare(stage, loop, steps)
    with as_it_was(stage.device) as names:
        exec(compile(filled(loop.above, stage.device, 10 * steps, not stage.rehearse), "<above>", "exec"), names)
        case = gpu_doctor.case(loop.cell, names)
        effect = case.trial(dict(settings), steps=stage.size(50, 6), seconds=float(stage.size(6, 2)))
    return judged(effect, gain(found["as written"], found["changed"]), found, verdict)


def judged(effect: Any, true: float, found: Mapping[str, list[float]], verdict: str) -> Row:
    """Judges a trial's verdict and gain by the bare clock."""
    ms = " and ".join(f"{1e3 * statistics.median(one):.2f}" for one in found.values())
    said = f"{effect.verdict or effect.outcome}: {effect}; bare {true:.3f}x ({ms} ms a step)"
    if effect.speedup is None:
        return row(said, False, true=true, bare_s=found, **effect.to_dict())
    good = verdict in ("", effect.verdict) and abs(effect.speedup / true - 1) <= WITHIN and not effect.not_restored
    return row(said, good, true=true, bare_s=found, **effect.to_dict())

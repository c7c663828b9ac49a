"""Diagnoses the loop of each GPU cause and each framework's program, and times what the loops' cures gain."""

from __future__ import annotations

import contextlib
import importlib
import io
import linecache
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import gpu_doctor
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.loops import HEALTHY, LOOPS, Loop, filled
from benchmarks.gpu.programs import FRAMEWORKS
from benchmarks.gpu.timing import as_it_was, gain, in_turns, step_s, with_fork
from gpu_doctor.diagnosis import Diagnosis

HEALTHY_BAR: Final = 0.10
"""No finding on the healthy loop may cost so much."""
SECONDS: Final = 4.0
"""A diagnosed run takes no longer."""
SHARES: Final = ("gpu_gap_share", "gpu_busy_share", "exposed_wait_share", "exposed_transfer_share", "sync_share")


def run(stage: Stage) -> None:
    """Makes all diagnoses first; then, while there is time, times all cures."""
    warnings.simplefilter("ignore")  # torch's advice on the number of workers, at every loader
    with_fork()
    works: dict[str, Callable[[], Row]] = {f"{one.key}: diagnosis": partial(diagnosed, stage, one) for one in LOOPS}
    works |= {f"{one.key}: cure": partial(cured, stage, one) for one in LOOPS if one.cured}
    stage.run(works, share=4.0)


def frameworks(stage: Stage) -> None:
    """Watches a program of each framework that is installed."""
    warnings.simplefilter("ignore")
    stage.run({one.name: partial(heard, stage, one) for one in FRAMEWORKS})


def ran(stage: Stage, one: Loop, steps: int, seconds: float | None = None) -> Any:
    """Records one run as `%%gpudoctor` does, and keeps the recording."""
    above = filled(one.above, stage.device, steps, not stage.rehearse)
    linecache.cache["<above>"] = (len(above), None, above.splitlines(keepends=True), "<above>")
    with as_it_was(stage.device) as names, contextlib.redirect_stdout(io.StringIO()):
        exec(compile(above, "<above>", "exec"), names)
        recording = gpu_doctor.case(one.cell, names).run(seconds=seconds)
    stage.record(one.key, recording)
    return recording


def heard(stage: Stage, one: Loop) -> Row:
    """Judges whether every step is heard, the device is timed, and no tap gives up."""
    try:
        importlib.import_module(one.name)
    except ImportError as error:
        return row(f"not here: {error}")
    steps = stage.size(60, 8)
    recording = ran(stage, one, steps)
    found, timed = int(recording.steps.count.sum()), int((recording.steps.device_steps > 0).sum())
    bad = [note for note in recording.notes if "failed" in note or "could not" in note]
    said = gpu_doctor.diagnose(recording)
    text = f"{found} of {steps} steps heard, {timed} timed on the device; {said.bottleneck}: {listed(said)}"
    good = found == steps and timed > 0 and not bad
    return row("; ".join([text, *bad]), good, notes=list(recording.notes))


def diagnosed(stage: Stage, one: Loop) -> Row:
    """Judges whether the sick loop's trouble is named first."""
    recording = ran(stage, one, stage.size(200, 10), SECONDS)
    return judged(one, gpu_doctor.diagnose(recording), tuple(recording.notes))


def listed(said: Diagnosis) -> str:
    """Lists the first findings with their shares, then the hints."""
    found = [f"{one.rule} {100 * (one.cost_share or 0.0):.0f} %" for one in said.findings[:4]]
    return ", ".join([*found, *(f"{one.rule} (a hint)" for one in said.hints[:3])]) or "nothing found"


def judged(one: Loop, said: Diagnosis, notes: tuple[str, ...] = ()) -> Row:
    """Judges a diagnosis: the trouble comes first or is a hint; on the healthy loop nothing may be dear."""
    wanted, vitals = (one.rule, *one.others), said.vitals
    first_of_all = (*said.findings[:1], *said.hints)
    good = any(found.rule in wanted for found in first_of_all)
    if one.rule == HEALTHY:
        good = all((found.cost_share or 0.0) < HEALTHY_BAR for found in said.findings)
    first = next(
        (found.prescriptions[0] for found in first_of_all if found.rule in wanted and found.prescriptions), None
    )
    silent = "".join(f" ({told.rule} silent: {told.reason})" for told in said.silent if told.rule in wanted)
    klass = f"{said.bottleneck}" + ("" if said.bottleneck == one.klass else f", not {one.klass}")
    predicted = None if first is None else first.predicted_speedup
    shares = {name: getattr(vitals, name, None) for name in SHARES}
    return row(f"{klass}: {listed(said)}{silent}", good, predicted=predicted, shares=shares, notes=notes)


def cured(stage: Stage, one: Loop) -> Row:
    """Times the sick and the cured loop."""
    steps = stage.size(60, 8)
    told = stage.rows.get(f"{one.key}: diagnosis", {}).get("figures", {})
    return priced(bare(stage, one, steps), one.samples, told.get("predicted"))


def bare(stage: Stage, one: Loop, steps: int) -> dict[str, list[float]]:
    """Times both sides in turns, in seconds a step, with none of our taps on."""
    above, better = (
        filled(text, stage.device, steps, not stage.rehearse) for text in (one.above, one.better or one.above)
    )
    sides = {
        "as written": lambda: step_s(above, one.cell, stage.device, steps),
        "changed": lambda: step_s(better, one.cured, stage.device, steps),
    }
    return in_turns(sides, stage.size(2, 1))


def priced(found: Mapping[str, list[float]], samples: float, predicted: float | None) -> Row:
    """Tells what the cure gains in samples a second beside the forecast, which may be that of another cure."""
    real = samples * gain(found["as written"], found["changed"])
    said = f"{1e3 * min(found['as written']):.2f} to {1e3 * min(found['changed']):.2f} ms a step: {real:.2f}x"
    said += f"; foretold {predicted:.2f}x" if predicted else "; no forecast"
    return row(said, None, real=real, predicted=predicted, seconds=found)

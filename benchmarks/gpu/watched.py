"""Runs cells under gpu_doctor: `python -m benchmarks.gpu.watched TEXTS.json DEVICE`, a line of JSON each."""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpu_doctor
from benchmarks.gpu.bare import as_it_was, with_fork
from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.recording import Recording


def recorded(before: str, cell: str, device: str, seconds: float | None = None) -> tuple[Recording, Diagnosis]:
    """One run, as `%%gpudoctor` makes it."""
    linecache.cache["<above>"] = (len(before), None, before.splitlines(keepends=True), "<above>")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with as_it_was(device):
        exec(compile(before, "<above>", "exec"), namespace)
        case = gpu_doctor.case(cell, namespace)
        with contextlib.redirect_stdout(io.StringIO()):
            recording = case.run(seconds=seconds)
        namespace.clear()
    return recording, gpu_doctor.diagnose(recording)


def told(diagnosis: Diagnosis, wanted: tuple[str, ...]) -> dict[str, Any]:
    """What is said of a patient; the forecast is that of the dearest finding that is one of those wanted."""
    findings = [(one.rule, round(one.cost_share, 4)) for one in diagnosis.findings]
    named = [one for one in diagnosis.findings if one.rule in wanted]
    first = named[0].prescriptions[0] if named and named[0].prescriptions else None
    vitals = diagnosis.vitals
    shares = ("gpu_gap", "gpu_busy", "exposed_wait", "exposed_transfer", "caught_up", "sync", "transfer", "data_wait")
    return {
        "bottleneck": diagnosis.bottleneck,
        "findings": findings,
        "named": [one.rule for one in named],
        "settings": {} if first is None else dict(first.settings),
        "predicted": None if first is None else first.predicted_speedup,
        "predicted_low": None if first is None else first.predicted_low,
        "predicted_high": None if first is None else first.predicted_high,
        "at_most": first is not None and first.at_most,
        "step_ms": None if vitals.step_wall_s is None else 1e3 * vitals.step_wall_s,
        "gpu_util_pct": vitals.gpu_util_pct,
        "shares": {name: getattr(vitals, f"{name}_share", None) for name in shares},
        "silent": {one.rule: one.reason for one in diagnosis.silent if one.rule in wanted},
    }


def examined(one: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The diagnosis of one patient, with what the recording notes."""
    recording, diagnosis = recorded(one["before"], one["sick"], device)
    return {**told(diagnosis, tuple(one["wanted"])), "notes": list(recording.notes), "outcome": recording.outcome}


def main(texts: Path, device: str) -> int:
    """Prints what is said, a line a patient; ends with the first that fails, since a device may be lost with it."""
    warnings.simplefilter("ignore")
    with_fork()
    for one in json.loads(texts.read_text(encoding="utf-8")):
        try:
            found = examined(one, device)
        except Exception as error:
            print(json.dumps({"key": one["key"], "error": f"{type(error).__name__}: {error}"[:500]}), flush=True)
            return 1
        print(json.dumps({"key": one["key"], **found}, default=str), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))

"""Gap, busy time, copies, waits and phases as we record them, beside torch.profiler's Kineto trace of the same steps.

The loops are those of tests/gpu/test_device_clock_gpu.py. In the rehearsal they are played on the simulated device,
which says itself what Kineto would have seen.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import gpu_doctor
from benchmarks.gpu.kept import Row, Stage, row
from benchmarks.gpu.phases import phase_seconds
from benchmarks.gpu.timing import synchronize

POINTS: Final = 0.03
"""The aim: shares of the device's time differ by no more."""
PHASES: Final = ("forward", "backward", "optimizer")
WARM: Final = 20


def run(stage: Stage) -> None:
    """A row a loop, one for the waits of those that have some, and one for the phases."""
    if stage.rehearse:
        _simulated(stage)
    else:
        _real(stage)
    stage.row("phases", lambda: phases(stage.device, stage.size(60, 5), stage.size(4096, 64), stage.rehearse))


def _real(stage: Stage) -> None:
    from tests.support.loops_traced import KINDS, ran, share

    def shares(name: str) -> Row:
        seen, true = ran(name, traced=False)
        ours = {"gap": share(seen, "gpu_gap_s"), "exposed copies": share(seen, "exposed_transfer_s")}
        theirs = {"gap": true.gap_share, "exposed copies": true.exposed_transfer_share}
        if KINDS[name].solid:
            ours["busy"], theirs["busy"] = share(seen, "gpu_s"), true.busy_share
        return compared(ours, theirs)

    def waits(name: str) -> Row:
        seen, true = ran(name, traced=True)
        return compared(
            {"exposed wait": share(seen, "exposed_wait_s")}, {"exposed wait": true.exposed_wait_share or 0.0}
        )

    for name in KINDS:
        stage.row(name, partial(shares, name))
    for name in KINDS:
        if KINDS[name].late_s:
            stage.row(f"{name}: waits", partial(waits, name))


def _simulated(stage: Stage) -> None:
    from gpu_doctor.diagnosis.vitals.measure import measure
    from tests.support.device_truth import trace, truth
    from tests.support.traced_device import LOOPS, Traced

    def played(name: str) -> Row:
        device = Traced(LOOPS[name])
        _, recording = LOOPS[name].play(device)
        true, ours = truth(trace(device.events, "cuda", "wait"), LOOPS[name].steps), measure(recording)
        return compared(
            {"gap": ours.gpu_gap_share or 0.0, "exposed wait": ours.exposed_wait_share or 0.0},
            {"gap": true.gap_share, "exposed wait": true.exposed_wait_share or 0.0},
        )

    for name in LOOPS:
        stage.row(name, partial(played, name))


def compared(ours: dict[str, float], theirs: dict[str, float]) -> Row:
    """Shares of the device's time, ours beside Kineto's."""
    off = {name: ours[name] - theirs[name] for name in ours}
    told = ", ".join(f"{name} {100 * ours[name]:.1f} % (Kineto {100 * theirs[name]:.1f} %)" for name in ours)
    return row(told, all(abs(one) <= POINTS for one in off.values()), ours=ours, kineto=theirs, off=off)


def phases(device: str, steps: int, width: int, rehearse: bool) -> Row:
    """Forward, backward and optimizer on the device: a loop that keeps it busy, with regions around its phases."""
    layers = [one for _ in range(4) for one in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    x = torch.randn(width, width, device=device)
    kinds = [ProfilerActivity.CPU, *([] if rehearse else [ProfilerActivity.CUDA])]
    kineto = profile(activities=kinds)
    with gpu_doctor.watch() as run_:
        for step in range(WARM + steps + 10):
            if step == WARM:
                synchronize(device)
                kineto.start()
            if step == WARM + steps:
                synchronize(device)
                kineto.stop()
            with record_function("forward"):
                out = model(x)
            loss = out.square().mean()
            optimizer.zero_grad()
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
    assert run_.recording is not None
    rows = run_.recording.steps.rows(WARM + 1, WARM + steps - 1)
    events = exported(kineto)
    if rehearse:
        regions = sum(one.get("cat") == "user_annotation" for one in events)
        return row(f"{len(events)} events with {regions} regions; the CPU launches no kernels", regions > 0)
    return compared(*_phase_shares(rows, phase_seconds(events, PHASES), steps))


def exported(kineto: Any) -> list[dict[str, Any]]:
    """The events of a trace, by way of the file that the profiler writes: its form has not changed for years."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        kineto.export_chrome_trace(str(path))
        return list(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def _phase_shares(rows: Any, theirs_s: dict[str, float], steps: int) -> tuple[dict[str, float], dict[str, float]]:
    """Of a mean step on the device; the steps that were not marked on it are left out of ours."""
    read = np.isfinite(rows.gpu_gap_s) & (rows.device_steps > 0)
    if read.sum() < 5:
        raise RuntimeError("too few steps were timed on the device")
    step_s = float((rows.gpu_gap_s + rows.gpu_s)[read].mean())
    ours = {one: float(getattr(rows, f"gpu_{one}_s")[read].mean()) / step_s for one in PHASES}
    return ours, {one: theirs_s[one] / steps / step_s for one in PHASES}

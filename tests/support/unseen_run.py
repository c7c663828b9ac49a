"""Runs programs in this process, which does nothing else: bare, or watched by gpu_doctor; prints a line of JSON after
each.

`python -m tests.support.unseen_run bare|watched FILE...`; in the place of `bare` the JSON of knobs that are
to be tried, such as `{"amp": "bf16"}`.
"""

from __future__ import annotations

import json
import linecache
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def bare(text: str, name: str) -> dict[str, Any]:
    """The program as it is, by `spanned`."""
    return spanned(lambda: exec(compile(text, name, "exec"), {"__name__": "__main__"}))


def tried(text: str, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What knobs of gpu_doctor give: the program is run as it is, then with them, as a trial would."""
    import gpu_doctor

    case = gpu_doctor.case(text, {"__name__": "__main__"})
    before, after = spanned(case.run), spanned(lambda: case.run(settings))
    return {"gain": before["span_s"] / after["span_s"]}


def spanned(execute: Callable[[], object]) -> dict[str, Any]:
    """Seconds from the end of the first optimizer step (of a program without one: from its first forward) to the end
    of the program, and the steps after it."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    marks: list[float] = []
    forwards: list[float] = []

    def forward(module: Any, args: Any) -> None:
        handle.remove()
        forwards.append(time.perf_counter())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(forward)
    stepped = register_optimizer_step_post_hook(lambda *_: marks.append(time.perf_counter()))
    try:
        execute()
    finally:
        stepped.remove()
    end = time.perf_counter()
    span = end - (marks or forwards or [end])[0]
    steps = max(len(marks) - 1, 0)
    return {"span_s": span, "steps": steps, "step_s": span / steps if steps else None}


def watched(text: str, name: str) -> dict[str, Any]:
    """What gpu_doctor says of it."""
    import gpu_doctor

    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    recording = gpu_doctor.case(text, {"__name__": "__main__"}).run()
    told = gpu_doctor.diagnose(recording)
    findings = []
    for one in told.findings:
        gains = [p.predicted_speedup for p in one.prescriptions if p.predicted_speedup is not None]
        settings = next((dict(p.settings) for p in one.prescriptions if p.settings), {})
        told_gain = gains[0] if gains else None
        findings.append({"rule": one.rule, "price": one.cost_share, "gain": told_gain, "settings": settings})
    vitals = told.vitals
    names: tuple[str, ...] = (
        "exposed_wait_share",
        "exposed_transfer_share",
        "gpu_gap_share",
        "gpu_busy_share",
        "sync_share",
    )
    names += ("data_wait_share", "transfer_share", "forward_share", "backward_share", "optimizer_share", "other_share")
    return {
        "class": told.bottleneck,
        "findings": findings,
        "verdict": told.verdict,
        "shares": {name: getattr(vitals, name) for name in names},
        "step_s": vitals.step_wall_s,
        "steps": vitals.steps,
        "outcome": recording.outcome,
        "reason": recording.reason,
        "notes": list(recording.notes),
    }


def main(how: str, *files: str) -> None:
    """Runs them, as the command line says."""
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        sys.path.insert(0, str(Path(file).parent.resolve()))
        sys.argv = [file]  # the options of the program, which has none
        if how in ("bare", "watched"):
            found = (bare if how == "bare" else watched)(text, file)
        else:
            found = tried(text, file, json.loads(how))
        print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

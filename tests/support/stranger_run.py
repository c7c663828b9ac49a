"""Runs programs in this process, which does nothing else: bare, or watched by gpu_doctor; prints a line of JSON after
each.

`python -m tests.support.stranger_run cpu|gpu bare|watched FILE...`; in the place of `bare` the JSON of knobs that are
to be tried, such as `{"amp": "bf16"}`.
"""

from __future__ import annotations

import json
import linecache
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def bare(text: str, name: str, gpu: Any) -> dict[str, Any]:
    """The program as it is, by `spanned`."""
    return spanned(lambda: exec(compile(text, name, "exec"), {"__name__": "__main__"}), gpu)


def tried(text: str, name: str, gpu: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """What knobs of gpu_doctor give: the program is run as it is, then with them, as a trial would."""
    import gpu_doctor

    case = gpu_doctor.case(text, {"__name__": "__main__"})
    before, after = spanned(case.run, gpu), spanned(lambda: case.run(settings), gpu)
    return {"gain": before["span_s"] / after["span_s"]}


def spanned(execute: Callable[[], object], gpu: Any) -> dict[str, Any]:
    """Seconds from the end of the first optimizer step (of a program without one: from its first forward) to the end
    of the program, the steps after it, and how busy a card was meanwhile."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    marks: list[tuple[float, int]] = []
    forwards: list[tuple[float, int]] = []

    def now() -> tuple[float, int]:
        return time.perf_counter(), gpu.queue.busy_ns if gpu is not None else 0

    def forward(module: Any, args: Any) -> None:
        handle.remove()
        forwards.append(now())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(forward)
    stepped = register_optimizer_step_post_hook(lambda *_: marks.append(now()))
    try:
        execute()
    finally:
        stepped.remove()
    if gpu is not None:
        gpu.queue.drain()
    begin, end = (marks or forwards or [now()])[0], now()
    span = end[0] - begin[0]
    steps = max(len(marks) - 1, 0)
    busy = (end[1] - begin[1]) * 1e-9 / span if gpu is not None and span > 0 else None
    return {"span_s": span, "steps": steps, "step_s": span / steps if steps else None, "busy": busy}


def watched(text: str, name: str, gpu: Any) -> dict[str, Any]:
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


def _nvml(gpu: Any) -> None:
    """NVML, as a stub that knows this card."""
    from tests.support import stub_nvml
    from tests.support.stand_in_gpu import UUID

    class Card(stub_nvml.Card):
        def __getattribute__(self, name: str) -> Any:
            if name == "util":
                return gpu.queue.utilisation_pct(), 0
            return gpu.memory.now if name == "used" else super().__getattribute__(name)

    card = Card(name=gpu.card.name, uuid=UUID, memory=gpu.card.memory, capability=gpu.card.capability)
    sys.modules["pynvml"] = stub_nvml.StubNvml(card)  # type: ignore[assignment]


def _looks(gpu: Any) -> None:
    """Looks at the stack come in real time: of those that fall into computing, as many are left as launches have."""
    from gpu_doctor.capture.lines.sampler import LineSampler

    look, clock = LineSampler.look, gpu.clock

    def thinned(sampler: Any) -> None:
        if not clock.computing or random.random() * clock.computed_ns < clock.launched_ns:
            look(sampler)

    LineSampler.look = thinned  # type: ignore[assignment]


def main(device: str, how: str, *files: str) -> None:
    """Runs them, as the command line says."""
    gpu = None
    if device == "gpu":
        from tests.support.stand_in_gpu import install

        gpu = install()
        _nvml(gpu)
        _looks(gpu)
    for file in files:
        text = Path(file).read_text(encoding="utf-8")
        sys.path.insert(0, str(Path(file).parent.resolve()))
        sys.argv = [file]  # the options of the program, which has none
        if how in ("bare", "watched"):
            found = (bare if how == "bare" else watched)(text, file, gpu)
        else:
            found = tried(text, file, gpu, json.loads(how))
        print("\n" + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a trouble of a loop is, and the recording of a loop that has some of them.

Times in ms a step, as in `recordings.Loop`; a trouble says nothing of rules but which names it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpu_doctor.recording import Metric, Recording, Series
from gpu_doctor.recording.setup import Chore, Traffic
from tests.support.recordings import Loop, on_gpu


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and what it adds to a healthy loop."""

    name: str
    rule: str
    """What a diagnosis of it names first."""
    adds: Mapping[str, float] = field(default_factory=dict)
    """ms a step onto fields of Loop."""
    sets: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of Loop."""
    setup: Mapping[str, Any] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    loader: Mapping[str, Any] = field(default_factory=dict)
    chore: tuple[str, float] | None = None
    """A costly call in every step: its kind, its ms."""
    traffic: Traffic | None = None
    stored: float = 0.0
    """Bytes from the storage per fetch."""
    readings: Mapping[str, float] = field(default_factory=dict)
    inside: float = 0.0
    """Of `gpu_work`, ms a step in which the GPU waits for launches: no kernel runs."""
    on_device: Mapping[str, float] = field(default_factory=dict)
    """ms a step of the device's own phases, by their columns."""
    batches: float = 1.0
    """Micro-batches a step."""
    gpu: bool = True


def laid(*troubles: Trouble) -> Recording:
    """The recording of a loop that has all of these troubles."""
    gpu = troubles[0].gpu
    loop = on_gpu(steps=40, workers=4, fetch=2.0, cores=8.0) if gpu else Loop(steps=40, cores=4.0)
    fields: dict[str, Any] = {}
    setup: dict[str, Any] = {"autocast": "bfloat16"} if gpu else {}
    flags: dict[str, Any] = {"matmul_precision": "high", "cudnn_benchmark": True, "deterministic": False}
    loader = {**loop.loader}
    for one in troubles:
        for name, ms in one.adds.items():
            fields[name] = fields.get(name, _number(getattr(loop, name))) + ms
        fields |= {**one.sets, "lines": fields.get("lines", ()) + one.sets.get("lines", ())}
        setup |= one.setup
        flags |= one.flags
        loader |= one.loader
    fields["setup"], fields["loader"] = {**setup, "flags": flags}, loader
    loop = loop.but(**fields)
    if gpu:  # the utilisation figure that goes with the gaps, between steps and inside of them
        inside = sum(one.inside for one in troubles)
        loop = loop.but(gpu_util=100.0 * (loop.gpu_work - inside) / (loop.gpu_work + loop.gpu_gap))
    return _with_the_rest(loop, troubles)


def _with_the_rest(loop: Loop, troubles: tuple[Trouble, ...]) -> Recording:
    made = loop.recording()
    run_s, n = float(made.steps.wall_s.sum()), len(made.steps)
    called = {one.chore for one in troubles if one.chore is not None}
    chores = tuple(
        Chore(kind, n, ms * n * 1e-3, float("nan"), "<cell>", 9, "<module>", f"{kind}()", ms * n * 1e-3)
        for kind, ms in sorted(called)
    )
    traffic = next((one.traffic for one in troubles if one.traffic is not None), None)
    readings = {"gpu_memory_total_bytes": 80e9} if loop.gpu else {}
    for one in troubles:
        readings |= one.readings
    times = np.linspace(0.0, run_s, 40)
    kept = tuple(one for one in made.series if one.metric.name not in readings)
    more = tuple(
        Series(Metric(name, "", name, "card", 0), times, np.full(40, float(value))) for name, value in readings.items()
    )
    stored = max(one.stored for one in troubles)
    fetches = tuple(
        replace(one, read_bytes=one.batches * stored, stored_bytes=one.batches * stored) for one in made.fetches
    )
    batches = max(one.batches for one in troubles)
    columns = {name: ms * 1e-3 for one in troubles for name, ms in one.on_device.items()}
    columns |= {"batches": batches} if batches > 1 else {}
    steps = replace(made.steps, **{name: np.full(n, value) for name, value in columns.items()})
    return replace(
        made,
        steps=steps,
        chores=chores,
        traffic=traffic or (Traffic(80, 8e6) if loop.gpu else None),
        series=(*kept, *more),
        fetches=fetches,
    )


def _number(value: Any) -> float:
    return 0.0 if value is None or value != value else float(value)

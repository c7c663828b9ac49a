"""Device time of each phase of a step, out of a trace as `torch.profiler` exports it: whose launch a kernel came from.

A launch is known by the call of the driver that made it (the same `correlation`), and its phase by the region of the
host in which that call began: a backward's kernels are launched by autograd's own thread while the loop's thread waits
in `backward()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from tests.support.device_truth import length, united

LAUNCHES: Final = ("cuda_runtime", "cuda_driver")
WORK: Final = ("kernel", "gpu_memset")


def phase_seconds(events: Iterable[Mapping[str, Any]], phases: tuple[str, ...]) -> dict[str, float]:
    """Seconds in which at least one kernel of each phase ran.

    Args:
        events: `traceEvents` of the trace. phases: names of `record_function` regions.
    """
    regions: dict[str, list[tuple[float, float]]] = {one: [] for one in phases}
    launched: dict[Any, float] = {}
    work: list[tuple[Any, float, float]] = []
    for one in events:
        kind, name = str(one.get("cat", "")).lower(), one.get("name")
        if one.get("ph") != "X":
            continue
        begin, end = float(one["ts"]), float(one["ts"]) + float(one.get("dur", 0.0))
        correlation = one.get("args", {}).get("correlation")
        if kind == "user_annotation" and name in regions:
            regions[str(name)].append((begin, end))
        elif kind in LAUNCHES and correlation is not None:
            launched[correlation] = begin
        elif kind in WORK:
            work.append((correlation, begin, end))
    found: dict[str, float] = {}
    for phase, spans in regions.items():
        mine = [(b, e) for correlation, b, e in work if _within(launched.get(correlation), spans)]
        found[phase] = 1e-6 * length(united(np.asarray(mine, dtype=np.float64).reshape(-1, 2)))
    return found


def _within(at: float | None, spans: list[tuple[float, float]]) -> bool:
    return at is not None and any(begin <= at <= end for begin, end in spans)

"""Hears for how long torch's debugging aids are on: anomaly detection and the autograd profiler.

Both are usually turned on inside the cell, often for a part of each step (`with torch.autograd.detect_anomaly():`), so
they are heard at the one switch that all their forms go through, and not asked for once. The seconds become the flags
`anomaly_on_s` and `profiler_on_s` of the setup. What torch.compile turns on for itself while it compiles is no aid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import profiler

from gpu_doctor.capture.taps.tap import TapScope


class OnTime:
    """Adds up the time in which something is on."""

    def __init__(self, clock: Callable[[], int], on: bool) -> None:
        """`on`: whether it is on already."""
        self._clock = clock
        self._ns = 0
        self._since: int | None = clock() if on else None

    def turn(self, on: bool) -> None:
        """It was turned on or off."""
        if on and self._since is None:
            self._since = self._clock()
        elif not on and self._since is not None:
            self._ns += self._clock() - self._since
            self._since = None

    def seconds(self) -> float:
        """Seconds on so far."""
        since = self._since
        return (self._ns + (self._clock() - since if since is not None else 0)) * 1e-9


def tap(scope: TapScope) -> None:
    """Listens at the switches; the flags hold the seconds in which each was on, where it was on at all."""
    facts, clock, fence = scope.recorder.facts, scope.recorder.clock, scope.recorder.fence
    anomaly = OnTime(clock, torch.is_anomaly_enabled())
    profiling = OnTime(clock, bool(getattr(profiler, "_is_profiler_enabled", False)))
    known = facts.get("flags", {})

    def flags() -> dict[str, Any]:
        found = dict(known() if callable(known) else known)
        seconds = {"anomaly_on_s": anomaly.seconds(), "profiler_on_s": profiling.seconds()}
        found.update({name: spent for name, spent in seconds.items() if spent > 0})
        return found

    def set_anomaly(original: Callable[..., None]) -> Callable[..., None]:
        def begins(*args: Any, **kwargs: Any) -> bool | None:
            return None if torch.compiler.is_compiling() else True

        def ends(token: bool, result: Any) -> None:
            anomaly.turn(torch.is_anomaly_enabled())

        return fence.around_in_graphs(original, begins, ends)

    def turned(on: bool) -> Callable[[Callable[[], None]], Callable[[], None]]:
        return lambda original: fence.around_in_graphs(original, lambda: True, lambda token, result: profiling.turn(on))

    facts["flags"] = flags
    scope.patches.wrap(torch, "set_anomaly_enabled", set_anomaly)
    if hasattr(profiler, "_run_on_profiler_start") and hasattr(profiler, "_run_on_profiler_stop"):
        scope.patches.wrap(profiler, "_run_on_profiler_start", turned(True))
        scope.patches.wrap(profiler, "_run_on_profiler_stop", turned(False))
    scope.at_end(lambda: anomaly.turn(False))
    scope.at_end(lambda: profiling.turn(False))

"""Vitals of the machine while the loop ran: mean use of its cores and of the training GPU, and peak memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from gpu_doctor import formatting
from gpu_doctor.recording import Column, Recording, Series, Steps

OF_A_GPU = ("gpu_util_pct", "tensor_active_pct")
"""Metrics that are read for each GPU; the others are of the whole machine."""
BUSY_FROM: Final = 0.10
"""Share of the usable cores from which on others are worth a word: more than a notebook's server, a browser's tab and
gpu_doctor's own threads use (2 to 5 % on two cores, measured with a kernel that did nothing else)."""


def machine(recording: Recording, rest: Steps) -> dict[str, float | None]:
    """Computes mean utilisation over the measured steps, and peak memory over the whole run.

    Args:
        recording: recording of a run or a trial.
        rest: its training steps after the warm-up.

    Returns:
        Fields of `Vitals` with their values; None for a value that was not read.
    """
    device, setup = recording.setup.gpu_index, recording.setup

    def mean(name: str) -> float | None:
        return _mean(recording.one_series(name, device if name in OF_A_GPU else None), rest)

    peak = recording.peak_bytes if np.isfinite(recording.peak_bytes) else None
    total = None if setup.card is None else setup.card.memory_bytes
    return {
        "gpu_util_pct": mean("gpu_util_pct"),
        "tensor_active_pct": mean("tensor_active_pct"),
        "cpu_util_pct": mean("cpu_util_pct"),
        "others_share": others_share((recording,)),
        "peak_bytes": peak,
        "memory_total_bytes": float(total) if total else None,
        "peak_share": peak / total if peak is not None and total else None,
    }


def others_share(recordings: Iterable[Recording]) -> float | None:
    """Returns the share of the usable cores that other programs used, over all readings of some runs; None = not read.

    What the machine was busy with less what this process and its workers used. Time that a virtual machine's host took
    away (steal) counts as others' use. Inside a container with a quota, only programs of the same container are seen.
    """
    shares: list[float] = []
    for recording in recordings:
        every, own = recording.one_series("cpu_util_pct"), recording.one_series("process_cpu_pct")
        if every is None or own is None or not len(every.values) or not len(own.values):
            continue
        ours = np.interp(every.times_s, own.times_s, own.values)
        shares += ((every.values - ours) / 100.0).tolist()
    known = [share for share in shares if np.isfinite(share)]
    return min(max(float(np.mean(known)), 0.0), 1.0) if known else None


def busy_machine(others_share: float | None) -> str:
    """Returns the clause on a machine that other programs used as well, without a capital; empty if few did."""
    if others_share is None or others_share < BUSY_FROM:
        return ""
    return f"measured on a busy machine: other programs used {formatting.share(others_share)} of the cores"


def _mean(series: Series | None, rest: Steps) -> float | None:
    """Returns the mean of the readings taken during the steps, not of what the cell does afterwards (plots, waits).

    A reading covers the time since the reading before it. It counts if most of that time lies before the last step's
    end.
    """
    if series is None or not len(series.values):
        return None
    begin_s, end_s = (float(rest.start_s[0]), rest.end_s) if len(rest) else (0.0, np.inf)
    since = np.concatenate(([begin_s], series.times_s[:-1])).clip(min=begin_s)
    values: Column = series.values[(series.times_s >= begin_s) & ((since + series.times_s) / 2 <= end_s)]
    return float(np.nanmean(values)) if len(values) and not np.isnan(values).all() else None

"""How much of the machine other programs used while something was measured: an effect under load is marked with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from gpu_doctor.recording import Recording

BUSY_FROM: Final = 0.10
"""Share of the usable cores from which on others are worth a word: more than a notebook's server, a browser's tab and
gpu_doctor's own threads use (2 to 5 % on two cores, measured with a kernel that did nothing else)."""


def others_share(recordings: Iterable[Recording]) -> float | None:
    """Share of the usable cores that other programs used, over all readings of some runs; None = not read.

    What the machine was busy with less what this process and its workers used. Time that a virtual machine's host took
    away (steal) counts as others' use. Inside a container with a quota, only programs of the same container are seen.
    """
    shares: list[float] = []
    for one in recordings:
        every, own = one.one_series("cpu_util_pct"), one.one_series("process_cpu_pct")
        if every is None or own is None or not len(every.values) or not len(own.values):
            continue
        ours = np.interp(every.times_s, own.times_s, own.values)
        shares += ((every.values - ours) / 100.0).tolist()
    known = [share for share in shares if np.isfinite(share)]
    return min(max(float(np.mean(known)), 0.0), 1.0) if known else None

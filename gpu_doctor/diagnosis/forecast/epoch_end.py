"""What leaving a pass over the data takes: its iterator is freed, and with it all that its sampler has drawn.

A list of a million indices takes some 10 ms to free. Python does so on the line that leaves the loop, which computes
nothing itself; a short run is looked at so seldom that no look may fall on it.
"""

from __future__ import annotations

import re
from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LineCost

DRAW_ALL: Final = {"RandomSampler", "DistributedSampler"}
"""Samplers that draw an epoch's order at once, as a list of all indices."""
DRAW_THEIRS: Final = {"WeightedRandomSampler"}
"""And those that draw as many as the epoch has samples."""
DRAWN_S: Final = 5e-8
"""Seconds an index of such a list where nobody timed it: while the run goes on, or of an earlier version."""
FREED_S: Final = 1e-8
"""And for freeing it."""
LEAVES: Final = re.compile(r"(if [^()\[\]]*:\s*)?(break|return)\s*(#.*)?$")
"""A line that leaves a loop; a condition that calls or indexes is none of it, since that may take the time."""


def leaving_lines(vitals: Vitals) -> list[LineCost]:
    """Line costs outside of every phase of lines that leave a loop."""
    return [one for one in vitals.lines_in("other") if not one.in_torch and LEAVES.match(one.text)]


def leaving_share(vitals: Vitals) -> float:
    """Share of the wall-clock that leaving passes over the data takes, 0..1: as looked at, or what its sampler drew."""
    seen = total(leaving_lines(vitals))
    epochs = max((vitals.epochs or 1) - 1, 0)
    run_s = (vitals.step_wall_s or 0.0) * vitals.measured_steps
    freed_s = (vitals.setup.speeds.freed_index_s or FREED_S) * _drawn(vitals)
    freed = freed_s * epochs / run_s if run_s > 0 else 0.0
    return min(max(seen, freed), vitals.other_share or 0.0)


def _drawn(vitals: Vitals) -> float:
    """Indices that an epoch's order holds as a list."""
    loader = vitals.loader
    if loader is None:
        return 0.0
    if loader.sampler in DRAW_ALL:
        return float(loader.dataset_len or 0)
    return float((loader.batches or 0) * (loader.batch_size or 0)) if loader.sampler in DRAW_THEIRS else 0.0

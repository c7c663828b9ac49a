"""What it costs to start a loader's workers and to end them, from facts of the loop's process.

A fork copies the page tables of the process that forks: the more memory in small objects the notebook holds, the
longer each worker's start takes.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.forecast.worker_costs import pace
from gpu_doctor.diagnosis.vitals.measure import Vitals

# Workers start at an epoch's begin and end with it: 12.5 ms each under fork (2.5 of them at the end), on a virtual
# machine of 2 cores, and 15 ms until the first works; spawn and forkserver are estimates: they import torch again.
START_S: Final = {"fork": 0.015, "forkserver": 0.5, "spawn": 2.0}
START_S_PER_WORKER: Final = {"fork": 0.0045, "forkserver": 1.0, "spawn": 1.5}
FORK_S_PER_BYTE: Final = 1.0e-8
"""Seconds a byte of the page tables that a fork copies: 8, 15, 21, 33 and 41 ms for 0.71, 1.41, 2.11, 2.80 and 3.49 MiB
(0.15 to 1.5 GB of small objects; the pages of 2 MB that numpy takes for large arrays need next to none)."""
USUAL_PAGE_TABLES: Final = 8e5
"""Bytes, where they were not read: of a kernel with torch and a small dataset."""


def starting_s(vitals: Vitals, workers: float, method: str = "") -> float:
    """Seconds that an epoch takes longer because so many workers start at its begin and end with it.

    Args:
        vitals: of the loop. workers: how many. method: of starting; empty = the loader's own, fork where unknown.
    """
    own = vitals.loader.start_method if vitals.loader is not None else ""
    method = next((one for one in (method, own) if one in START_S), "fork")
    each = START_S_PER_WORKER[method]
    if method == "fork":
        each += FORK_S_PER_BYTE * (vitals.page_table_bytes or USUAL_PAGE_TABLES)
    return pace(vitals) * (START_S[method] + each * workers)

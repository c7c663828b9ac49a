"""Decides if a loop on a GPU is limited by something else than its kernels, so that faster ones would gain nothing."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.vitals.fields import SYNC_SHARE, Vitals

IDLE_SHARE: Final = 0.05
"""Part of a GPU's time that it must idle between steps to count as held up (the bar of findings)."""
BUSY_SHARE: Final = 0.5
"""Part of a step for which workers must fetch to limit the loop (as for too-few-workers)."""
NONE_READY: Final = 0.5
"""Part of the requests at which no batch must be ready for workers to limit the loop; with fewer, the loop waits for
a few slow batches."""


def kernels_set_it(vitals: Vitals) -> bool:
    """True if faster kernels would make the loop faster; always true on a CPU device, which runs one thing at a time.

    If nothing waits for the GPU and it still idles between phases, it finishes before its host brings more work: the
    host is busy with fetching a batch, with Python or with launches.
    """
    if not vitals.on_gpu:
        return True
    if vitals.gpu_outruns_host:
        return False
    idle = (vitals.gpu_gap_share or 0.0) - (vitals.exposed_transfer_share or 0.0) - vitals.tripped_share
    return idle < IDLE_SHARE or (vitals.sync_share or 0.0) >= SYNC_SHARE


def at_most(vitals: Vitals, share: float) -> float:
    """Returns how much of a saving on a GPU the loop would gain, as a share of the wall-clock, 0..1.

    The rest is lost again to waiting for the workers' batches. Launches, too, may limit the loop once kernels are
    faster, but their time cannot be measured while the GPU is behind: a full queue holds the host back within its
    calls, also in steps of thousands of launches that end with a wait. So a step that takes hardly longer to compute
    than to launch is priced too high: up to 3.7 times in simulated streams.

    Args:
        vitals: vitals of the run.
        share: share of the wall-clock that the cure saves on the GPU, 0..1.
    """
    step_s = vitals.step_wall_s
    if not vitals.on_gpu or not vitals.workers or not step_s:
        return share
    if vitals.steady_wait_share >= IDLE_SHARE and (vitals.empty_share is None or vitals.empty_share >= NONE_READY):
        share = 0.0 if fetched_s(vitals) >= BUSY_SHARE * step_s else share
    return max(min(share, 1.0 - fetched_s(vitals) / step_s), 0.0)

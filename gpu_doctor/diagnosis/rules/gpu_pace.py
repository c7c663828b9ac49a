"""What else sets the pace of a GPU's loop: where something does, kernels and copies that take less gain nothing."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.forecast.stages import fetched_s
from gpu_doctor.diagnosis.vitals.fields import SYNC_SHARE, Vitals

IDLE_SHARE: Final = 0.05
"""A GPU that idles less between its steps is not kept from working (the bar of findings)."""
BUSY_SHARE: Final = 0.5
"""Workers set the pace only if they fetch most of the time (as for too-few-workers),"""
NONE_READY: Final = 0.5
"""and if mostly no batch lies ready: elsewhere a few slow ones are waited for."""


def kernels_set_it(vitals: Vitals) -> bool:
    """Whether a loop on a GPU would take less time if its kernels did; true on a CPU device, where all is one queue.

    A GPU that nobody waits for and that idles between phases all the same is through before its host comes with
    more: with a batch that it fetches itself, with Python, with launches.
    """
    if not vitals.on_gpu:
        return True
    if vitals.gpu_outruns_host:
        return False
    idle = (vitals.gpu_gap_share or 0.0) - (vitals.exposed_transfer_share or 0.0) - vitals.tripped_share
    return idle < IDLE_SHARE or (vitals.sync_share or 0.0) >= SYNC_SHARE


def at_most(vitals: Vitals, share: float) -> float:
    """Of what a cure on a GPU saves, 0..1, the part that the loop gains: it waits for its workers' batches instead.

    Launches, too, may set the pace once kernels are quicker, but how long they take cannot be told where the GPU is
    behind: a full queue holds the host back within its calls, also in steps of thousands of launches that end with a
    wait. So a step that is launched in hardly less than it is computed is priced too high: up to 3.7 times in simulated
    streams.
    """
    step_s = vitals.step_wall_s
    if not vitals.on_gpu or not vitals.workers or not step_s:
        return share
    if vitals.steady_wait_share >= IDLE_SHARE and (vitals.empty_share is None or vitals.empty_share >= NONE_READY):
        share = 0.0 if fetched_s(vitals) >= BUSY_SHARE * step_s else share
    return max(min(share, 1.0 - fetched_s(vitals) / step_s), 0.0)

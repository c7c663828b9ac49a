"""Forecasts pinned memory and non-blocking copies: at most they save the time in which the GPU waits for copies."""

from __future__ import annotations

from gpu_doctor.diagnosis.forecast.prediction import Forecast, between
from gpu_doctor.diagnosis.vitals.fields import Vitals


def without_copies(v: Vitals, pins: bool) -> Forecast | None:
    """Forecasts a loop without exposed copies: at best all of them go, at worst nothing is gained.

    Args:
        v: vitals of the loop as it is.
        pins: True if the loader is to pin the batches.

    Returns:
        None on a CPU, if no copy is exposed, or if no pageable copy could be pinned. None too without workers: the loop
        itself would pin the batches, and the time for that was not measured.
    """
    step, exposed = v.step_wall_s, v.exposed_transfer_share
    if not v.on_gpu or step is None or not exposed or (pins and not (v.workers and v.pageable_share)):
        return None
    return between(v, step * (1.0 - min(exposed, 0.99)), step, "the rest of the step, if no wait for copies remains")

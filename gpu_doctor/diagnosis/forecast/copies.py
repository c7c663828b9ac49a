"""What pinned memory and copies that are not waited for give at most: the time in which the GPU waits for copies."""

from __future__ import annotations

from gpu_doctor.diagnosis.forecast.prediction import Forecast, between
from gpu_doctor.diagnosis.vitals.fields import Vitals


def without_copies(v: Vitals, pins: bool) -> Forecast | None:
    """At most all of the exposed copies go; at worst nothing is gained.

    Args:
        v: vitals of the loop as it is.
        pins: its loader is to pin the batches.

    Returns:
        None on a CPU device, where no copy is exposed, and where no pageable one could be pinned. None too if the loop
        itself would have to pin the batches, for want of workers: how long that takes nobody measured.
    """
    step, exposed = v.step_wall_s, v.exposed_transfer_share
    if not v.on_gpu or step is None or not exposed or (pins and not (v.workers and v.pageable_share)):
        return None
    return between(v, step * (1.0 - min(exposed, 0.99)), step, "everything but the copies, if all of them go")

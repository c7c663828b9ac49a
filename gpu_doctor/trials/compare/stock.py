"""Subtracts prefetched batches from a stretch of steps: those that workers had ready before it began.

With workers, up to `prefetch_factor` batches per worker are ready when the measuring begins. A loop that uses them up
in a few seconds looks faster than it can stay: the workers made only the batches it took minus the decrease of the
stock. If the stock rises, the loop is the bottleneck and its own pace counts. At the end of an epoch the stock runs out
in any case, because nothing remains to be fetched; that is not recorded (`capture.fetch.prefetch_queue`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gpu_doctor.recording import Recording

ENDS: Final = 8
"""The stock at an end is the mean of the looks in so great a part of the stretch, or of one round of all workers: they
deliver in bursts, and a single look says where in a burst it fell."""


def made_share(recording: Recording, taken: float, until: float) -> float:
    """Returns the share of a stretch's batches that was made during it, at most 1; 1 if batches were not counted.

    Args:
        recording: the run.
        taken: batches that the loop had taken before the stretch.
        until: batches taken by the end of the stretch.
    """
    loader = recording.setup.training_loader
    fetch = next(
        (candidate for candidate in recording.fetches if loader is not None and candidate.loader == loader.key), None
    )
    if fetch is None or not fetch.workers or until <= taken:
        return 1.0
    # Where several loaders are drawn from, this one's part of the batches.
    every, own = float(np.nansum(recording.steps.batches)), fetch.delivered
    part = own / every if own and every else 1.0
    taken, until = part * taken, part * until
    inside = (fetch.ready_after >= taken) & (fetch.ready_after <= until)
    ready, after = fetch.ready[inside], fetch.ready_after[inside]
    if not len(after):
        return 1.0
    wide = max((until - taken) / ENDS, fetch.workers)
    first, last = after < taken + wide, after > after[-1] - wide
    apart = float(after[-1]) - taken - wide
    if not first.any() or apart <= 0:
        return 1.0
    fell = max(float(ready[first].mean() - ready[last].mean()), 0.0)
    return max(1.0 - fell / apart, 1.0 / (until - taken))

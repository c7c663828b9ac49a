"""What a sweep and a search for the largest batch found, as plain data for the page."""

from __future__ import annotations

from typing import Any

from gpu_doctor import report_batches, report_sweep, wording
from gpu_doctor.report_batches import LargestLike
from gpu_doctor.report_sweep import SweepLike


def sweep_state(sweep: SweepLike | None) -> dict[str, Any] | None:
    """None before any sweep."""
    if sweep is None:
        return None
    return {
        "sentence": report_sweep.sentence(sweep),
        "places": [dict(vars(one)) for one in report_sweep.places(sweep)],
        "first": report_sweep.FIRST,
        "notes": [wording.clean(one, 600) for one in sweep.notes],
        "settings": dict(sweep.best),
    }


def largest_state(largest: LargestLike | None) -> dict[str, Any] | None:
    """None before any search."""
    if largest is None:
        return None
    size = largest.best_batch_size or largest.batch_size
    return {
        "sentence": report_batches.sentence(largest),
        "sizes": [dict(vars(one)) for one in report_batches.sizes(largest)],
        "notes": [wording.clean(one, 600) for one in largest.notes],
        "settings": {} if size is None else {"batch_size": size},
    }

"""What a sweep and a search for the largest batch found, as plain data for the page."""

from __future__ import annotations

from typing import Any

from gpu_doctor import formatting
from gpu_doctor.report import report_batches, searches
from gpu_doctor.report.report_batches import LargestLike
from gpu_doctor.report.searches import SweepLike


def sweep_state(sweep: SweepLike | None) -> dict[str, Any] | None:
    """None before any sweep."""
    if sweep is None:
        return None
    return {
        "sentence": searches.sentence(sweep),
        "places": [dict(vars(one)) for one in searches.places(sweep)],
        "first": searches.FIRST,
        "notes": [formatting.clean(one, 600) for one in sweep.notes],
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
        "notes": [formatting.clean(one, 600) for one in largest.notes],
        "settings": {} if size is None else {"batch_size": size},
    }

"""Vitals of evaluation: what its passes pay at their begin, where worker processes start and fetch a first batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Steps


@dataclass(frozen=True)
class EvaluationVitals:
    """A part of Vitals."""

    evaluation_edge_share: float | None = None
    """Part of evaluation_share: the begin of passes whose batches a loader delivers, workers started and first batch
    fetched; what the workers' end takes after each pass is not in it."""
    evaluation_passes: int | None = None
    """Such passes in the whole run; in an old recording at least so many: one left early looks like a part of one."""
    evaluation_fetch_s: float | None = None
    """Mean wall seconds that a batch of theirs takes to fetch, in the process where it is fetched."""
    evaluated_steps_share: float | None = None
    """Of the steps, those in which something was evaluated; None where steps are kept in blocks."""
    uneven_forward_share: float | None = None
    """Part of forward_share: what the forwards of some steps take beyond those of the median step. Evaluation passes
    that nothing tells from training lie there. None where steps are kept in blocks."""


def evaluation(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """What is read off a recording for the fields above; a name that is left out is None = not measured.

    Args:
        recording: of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up.
    """
    found: dict[str, Any] = {}
    if len(steps) and (steps.count == 1).all():
        found["evaluated_steps_share"] = float((steps.evaluation_s > 0).mean())
        found["uneven_forward_share"] = _uneven(steps.where(steps.start_s >= begin_s))
    facts = recording.setup.evaluation
    loaders = {one.key: one for one in recording.setup.loaders if one.role == "evaluation"}
    fetches = [one for one in recording.fetches if one.loader in loaders and one.batches]
    run_s = float(np.nansum(steps.wall_s)) if len(steps) else 0.0
    if facts is None or not math.isfinite(facts.edge_s) or not fetches or run_s <= 0:
        return found
    # A loop that was stopped in the middle of a pass has begun it, and no row has its seconds.
    evaluated_s = float(np.nansum(steps.evaluation_s))
    return found | {
        "evaluation_edge_share": min(facts.edge_s, evaluated_s) / run_s,
        "evaluation_passes": sum(_passes(one, loaders[one.loader], steps) for one in fetches),
        "evaluation_fetch_s": sum(one.wall_s for one in fetches) / sum(one.batches for one in fetches),
    }


def _uneven(rest: Steps) -> float | None:
    forward = rest.forward_s[np.isfinite(rest.forward_s)]
    wall_s = float(rest.wall_s.sum()) if len(rest) else 0.0
    return float(np.maximum(forward - np.median(forward), 0.0).sum()) / wall_s if len(forward) and wall_s else None


def _passes(fetch: Fetch, loader: LoaderSetup, steps: Steps) -> int:
    """As they began; where nobody counted, by the batches fetched, or for a stream without a length by the rows."""
    if fetch.passes is not None:
        return max(fetch.passes, 1)
    if not loader.batches:
        return max(int((steps.evaluation_s > 0).sum()), 1)
    return max(round(fetch.batches / loader.batches), 1)

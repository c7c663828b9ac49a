"""Vitals of evaluation: its passes, and the time that starting and ending them takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_doctor.recording import Fetch, LoaderSetup, Recording, Steps


@dataclass(frozen=True)
class EvaluationVitals:
    """Fields of Vitals on evaluation."""

    evaluation_edge_share: float | None = None
    """Part of evaluation_share spent at the edges of passes over a loader: starting workers, fetching the first batch,
    and ending the workers when the loader is exhausted."""
    evaluation_passes: int | None = None
    """Evaluation passes over a loader in the whole run. In an old recording a lower bound: a pass that was left early
    counts as a part of one."""
    evaluation_fetch_s: float | None = None
    """Mean wall-clock seconds to fetch a batch of these passes, in the process that fetches it."""
    evaluated_steps_share: float | None = None
    """Part of the steps in which something was evaluated; None if a row holds several steps."""
    uneven_forward_share: float | None = None
    """Part of forward_share that exceeds the median step's forwards. Evaluation passes that look like training lie
    there. None if a row holds several steps."""


def evaluation(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """Computes the fields of EvaluationVitals; a field missing from the result was not measured.

    Args:
        recording: recording of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up, in seconds of the run.
    """
    found: dict[str, Any] = {}
    if len(steps) and (steps.count == 1).all():
        found["evaluated_steps_share"] = float((steps.evaluation_s > 0).mean())
        found["uneven_forward_share"] = _uneven(steps.where(steps.start_s >= begin_s))
    facts = recording.setup.evaluation
    loaders = {loader.key: loader for loader in recording.setup.loaders if loader.role == "evaluation"}
    fetches = [fetch for fetch in recording.fetches if fetch.loader in loaders and fetch.batches]
    run_s = float(np.nansum(steps.wall_s)) if len(steps) else 0.0
    if facts is None or not math.isfinite(facts.edge_s) or not fetches or run_s <= 0:
        return found
    # If the run was stopped in the middle of a pass, edge_s has the pass' start and no row has its seconds.
    evaluated_s = float(np.nansum(steps.evaluation_s))
    return found | {
        "evaluation_edge_share": min(facts.edge_s, evaluated_s) / run_s,
        "evaluation_passes": sum(_passes(fetch, loaders[fetch.loader], steps) for fetch in fetches),
        "evaluation_fetch_s": sum(fetch.wall_s for fetch in fetches) / sum(fetch.batches for fetch in fetches),
    }


def _uneven(rest: Steps) -> float | None:
    """Share of the wall-clock by which steps' forwards exceed the median step's; None without a measured forward."""
    forward = rest.forward_s[np.isfinite(rest.forward_s)]
    wall_s = float(rest.wall_s.sum()) if len(rest) else 0.0
    return float(np.maximum(forward - np.median(forward), 0.0).sum()) / wall_s if len(forward) and wall_s else None


def _passes(fetch: Fetch, loader: LoaderSetup, steps: Steps) -> int:
    """Returns how many evaluation passes pulled from a loader, at least 1.

    If passes were not counted, they are estimated from the batches fetched, or, for a stream without a length, from the
    rows with an evaluation.
    """
    if fetch.passes is not None:
        return max(fetch.passes, 1)
    if not loader.batches:
        return max(int((steps.evaluation_s > 0).sum()), 1)
    return max(round(fetch.batches / loader.batches), 1)

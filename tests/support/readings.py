"""Readings of the machine for a synthetic loop, and how a rule judges the loop with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Metric, Recording, Series
from tests.support.recordings import Loop

READINGS = 24


def read(recording: Recording, device: int | None = 0, **values: float | Sequence[float] | NDArray[Any]) -> Recording:
    """The recording with these readings, evenly over its steps; a single number is read every time."""
    steps = recording.steps
    end_s = float(steps.start_s[-1] + steps.wall_s[-1])
    series = []
    for name, value in values.items():
        column = np.full(READINGS, float(value)) if isinstance(value, (int, float)) else np.asarray(value, dtype=float)
        times = np.linspace(0.0, end_s, len(column))
        series.append(Series(Metric(name, "", name, "detail", device), times, column))
    taken = {(one.metric.name, one.metric.device) for one in series}
    kept = [one for one in recording.series if (one.metric.name, one.metric.device) not in taken]
    return dataclasses.replace(recording, series=(*kept, *series))


def judged(name: str, recording: Recording | Loop) -> Finding | None:
    """What the rule finds; None also where a vital that it needs is missing."""
    vitals = measure(recording.recording() if isinstance(recording, Loop) else recording)
    one = next(one for one in RULES if one.name == name)
    if any(getattr(vitals, need) is None for need in one.needed(vitals)):
        return None
    found = one.finds(vitals)
    if found is not None:
        assert found.rule == name and 0.0 <= found.cost_share <= 1.0 and found.headline.endswith(".")
        assert all("not measured" not in text and "None" not in text for text in (found.headline, *found.evidence))
    return found


def surely(name: str, recording: Recording | Loop) -> Finding:
    """What the rule finds in a loop that has its problem."""
    found = judged(name, recording)
    assert found is not None, f"{name} found nothing"
    return found


def with_outcome(recording: Recording, outcome: str, reason: str) -> Recording:
    """The recording, had it ended so."""
    return dataclasses.replace(recording, outcome=outcome, reason=reason)


def zipped(recording: Recording, workers: int | None = None) -> Recording:
    """The recording of a loop whose every step pulls from a second loader too: `zip(labelled, unlabelled)`."""
    (mine,), (loader,) = recording.fetches, recording.setup.loaders
    others = loader.num_workers if workers is None else workers
    beside = dataclasses.replace(loader, key="Unlabelled[9000] #1", num_workers=others)
    return replaced(
        recording,
        steps=dataclasses.replace(recording.steps, batches=recording.steps.batches * 2),
        setup=dataclasses.replace(recording.setup, loaders=(loader, beside)),
        fetches=(mine, dataclasses.replace(mine, loader=beside.key, workers=others)),
    )


def replaced(recording: Recording, **changes: Any) -> Recording:
    """The recording with fields of its own replaced."""
    return dataclasses.replace(recording, **changes)

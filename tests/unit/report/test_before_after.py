"""Both sides of a trial stand beside each other to one time scale, with how their steps spread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis import diagnose, warmup_rows
from gpu_doctor.recording import Recording
from gpu_doctor.report import as_text as report
from gpu_doctor.report.before_after import FEWEST, newest
from gpu_doctor.report.panel import state
from gpu_doctor.report.sections import Reported
from gpu_doctor.report.trials import Sides
from gpu_doctor.trials import knobs
from gpu_doctor.trials.compare.effect import Effect, compare
from tests.support.html_page import Page
from tests.support.panel_parts import replaced, shown
from tests.support.recordings import starved
from tests.support.trial_parts import WORKERS


def sides(**fields: Any) -> Sides:
    """As written 40 ms a step, with workers 12 ms."""
    return starved(), starved(wait_s=0.002, workers=4, settings=WORKERS, **fields)


def compared(*pairs: Sides) -> dict[str, Any] | None:
    tried = tuple(compare([base], [candidate]) for base, candidate in pairs)
    found: dict[str, Any] | None = state(shown(starved(), effects=tried, trials=pairs), knobs.KNOBS)["anatomy"][
        "compared"
    ]
    return found


def test_both_bars_have_one_time_scale() -> None:
    found = compared(sides())
    assert found is not None
    before, after = found["sides"]
    assert [(one["label"], one["total"]) for one in found["sides"]] == [
        ("as written", "40.0 ms"),
        ("num_workers=4", "12.0 ms"),
    ]
    assert sum(one["share"] for one in before["segments"]) == pytest.approx(1.0, abs=0.001)
    assert sum(one["share"] for one in after["segments"]) == pytest.approx(0.3, abs=0.001)
    wait = after["segments"][0]
    assert (wait["label"], wait["time"], wait["percent"]) == ("data wait", "2.00 ms", "17 %"), "of its own step"
    assert found["of"].startswith("trial 1: means of 59 and 55 steps")


def test_before_a_trial_and_after_one_that_measured_nothing_there_is_none() -> None:
    assert compared() is None
    base, candidate = sides()
    assert compared((base, replace(candidate, outcome="failed", reason="Why."))) is None
    refused = Effect(WORKERS, {}, outcome="refused", reason="Why.")
    assert newest((refused,), (None,)) is None


def test_the_newest_that_measured_is_shown() -> None:
    base, candidate = sides()
    slower = starved(wait_s=0.05, settings={"num_workers": 1}, workers=1)
    found = compared((base, candidate), (base, slower), (base, replace(candidate, outcome="failed", reason="Why.")))
    assert found is not None and found["of"].startswith("trial 2: ")
    before, after = found["sides"]
    assert sum(one["share"] for one in before["segments"]) == pytest.approx(40 / 60, abs=0.001)
    assert sum(one["share"] for one in after["segments"]) == pytest.approx(1.0, abs=0.001)


def test_a_step_of_more_samples_is_shown_for_as_many() -> None:
    base, candidate = sides()
    twice = replace(
        candidate, steps=replaced(candidate.steps, samples=np.full(60, 256.0)), settings={"batch_size": 256}
    )
    found = compared((base, twice))
    assert found is not None
    assert found["sides"][1]["total"] == "6.00 ms for as many samples (12.0 ms a step)"
    assert sum(one["share"] for one in found["sides"][1]["segments"]) == pytest.approx(6 / 40, abs=0.001)


def uneven(recording: Recording) -> Recording:
    """Its steps get longer, one by one, from once to twice their time."""
    wall = recording.steps.wall_s * np.linspace(1.0, 2.0, len(recording.steps))
    return replace(recording, steps=replaced(recording.steps, wall_s=wall))


def test_the_spread_of_both_sides_has_one_scale() -> None:
    base, candidate = sides()
    found = compared((base, uneven(candidate)))
    assert found is not None
    before, after = (one["spread"] for one in found["sides"])
    assert before["at"] == [1.0] * 5
    rows = np.linspace(12.0, 24.0, 60)[warmup_rows(uneven(candidate).steps, 4) :]
    wanted = np.quantile(rows, (0.05, 0.25, 0.5, 0.75, 0.95)) / 40.0
    assert after["at"] == pytest.approx(wanted.tolist(), abs=0.001)
    assert after["text"].startswith("median ") and "90 % of the steps " in after["text"]


def test_a_spread_far_beyond_the_bars_is_cut_off() -> None:
    base, candidate = sides()
    wall = np.where(np.arange(60) % 4 == 3, 0.120, 0.0133)
    bursty = replace(base, steps=replaced(base.steps, wall_s=wall))
    found = compared((bursty, candidate))
    assert found is not None
    first = found["sides"][0]
    assert first["spread"]["at"][-1] == 1.0
    assert sum(one["share"] for one in first["segments"]) == pytest.approx(1 / 1.5, abs=0.001)


def test_a_few_steps_have_no_spread() -> None:
    few = starved(steps=FEWEST), starved(steps=FEWEST, wait_s=0.002, settings=WORKERS)
    found = newest((Effect(WORKERS, {}, 3.0, 2.8, 3.2, "faster"),), (few,))
    assert found is not None and all(side.spread == "" and side.quantiles_s == () for side in found.sides)


def test_text_and_static_result_show_both() -> None:
    pair = sides()
    tried = (compare([pair[0]], [pair[1]]),)
    diagnosis = diagnose(pair[0])
    told = report.text(Reported(diagnosis, (pair[0],), tried, trials=(pair,)))
    assert "Before and after, trial 1" in told and "as written: 40.0 ms" in told and "num_workers=4: 12.0 ms" in told
    bars = [line.count("█") for line in told[told.index("Before and after") :].splitlines()[:5] if "█" in line]
    assert bars == [40, 12]
    page = Page(report.html(Reported(diagnosis, (pair[0],), tried, trials=(pair,))))
    assert "Before and after" in page.text and "median 12.0 ms" in page.text
    assert "Before and after" not in Page(report.html(Reported(diagnosis, (pair[0],)))).text

"""Every cause of every rule, on the loops of `tests/support/rule_loops/`: named where it is, and only there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules import CAUSES
from gpu_doctor.diagnosis.rules.rule import Finding, Safety
from gpu_doctor.recording import Recording, Setup
from gpu_doctor.recording.steps import STEP_COLUMNS
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs import compile as compile_knob
from tests.support.recordings import with_columns
from tests.support.rule_loops import FAMILIES, LOOPS, diagnosed, recordings, sick_recording
from tests.support.rule_loops.form import CauseLoops, Sick

each_cause = pytest.mark.parametrize("loops", LOOPS.values(), ids=LOOPS)
SICK = [(f"{loops.cause}: {why}", loops, row) for loops in LOOPS.values() for why, row in loops.sick.items()]
NEAR = [(f"{loops.cause}: {why}", loops.cause, run) for loops in LOOPS.values() for why, run in loops.near.items()]
OTHER = [(f"{loops.cause}: {why}", *row) for loops in LOOPS.values() for why, row in loops.other.items()]


def rows(table: list[Any]) -> Any:
    """Returns the rows as parameters with their names as ids."""
    return [pytest.param(*values, id=name) for name, *values in table]


def named(found: Diagnosis) -> tuple[str, ...]:
    """Returns all causes that a diagnosis names, hints last; no rule may have failed."""
    assert not [one for one in found.silent if one.reason.startswith("failed")]
    return tuple(one.rule for one in (*found.findings, *found.hints))


def test_every_cause_has_a_sick_a_well_and_a_nearly_sick_loop() -> None:
    assert {cause.name: cause.family for cause in CAUSES} == {
        loops.cause: family for family, causes in FAMILIES.items() for loops in causes
    }
    for loops in LOOPS.values():
        where = f"{loops.cause} in tests/support/rule_loops"
        assert loops.sick, f"{where}: add a sick loop"
        assert loops.near or loops.other, f"{where}: add a near miss, a loop in which the cause must not be named"


@pytest.mark.parametrize(("loops", "row"), rows(SICK))
def test_sick(loops: CauseLoops, row: Sick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_knob, "unsupported", lambda device: "")  # Triton is not everywhere
    diagnosis = diagnosed(row.run)
    assert named(diagnosis) == (row.named or (loops.cause,))
    found = next(one for one in (*diagnosis.findings, *diagnosis.hints) if one.rule == loops.cause)
    assert found.cost_share == (None if row.share is None else pytest.approx(row.share, abs=row.within))
    assert found.kind == ("hint" if row.share is None else row.kind or loops.kind)
    assert found.first is loops.first
    assert bool(found.risk) is (loops.risk if row.risk is None else row.risk)
    text = " ".join((found.headline, *found.evidence, found.risk))
    cures = " ".join(f"{one.text} {one.code} {one.changes}" for one in found.prescriptions)
    assert [one for one in row.figures if one not in text] == []
    assert [one for one in row.cures if one not in cures] == []
    assert [one for one in row.unsaid if one in text + cures] == []
    assert tuple(one.settings for one in found.prescriptions if one.settings) == row.settings
    foretold(found, row.gain)
    if diagnosis.findings[:1] == (found,):
        assert diagnosis.verdict.startswith(found.headline)
    well_formed(found)
    for one in found.prescriptions:
        knobs.allow(one.settings, recordings(row.run)[0].setup)


def foretold(found: Finding, gain: float | None) -> None:
    """Checks the forecast of the first prescription: its bounds hold the gain, and it is near it; or there is none."""
    first = found.prescriptions[0]
    assert first.predicted_speedup == (None if gain is None else pytest.approx(gain, rel=0.2))
    assert gain is None or (first.predicted_low or 9.0) <= gain <= (first.predicted_high or 0.0)


def well_formed(found: Finding) -> None:
    """Checks what holds of every finding: sentences, shares, bounds, code that compiles, settings as the knobs say."""
    assert found.headline.endswith(".") and (not found.risk or found.risk.endswith("."))
    assert found.cost_share is None or 0.0 <= found.cost_share <= 1.0
    assert found.kind != "hint" or found.risk or "%" not in found.headline, "nothing measured prices it"
    assert not any("None" in part or "nan" in part for part in (found.headline, *found.evidence))
    for one in found.prescriptions:
        bounds = (one.predicted_low, one.predicted_speedup, one.predicted_high)
        assert (None not in bounds and list(bounds) == sorted(bounds)) or set(bounds) == {None}  # type: ignore[type-var]
        safety = {knobs.known(name).safety for name in one.settings} or {Safety.BY_HAND}
        assert one.safety is max(safety, key=lambda one: one is Safety.CHANGES_TRAINING)
        assert one.safety is not Safety.CHANGES_TRAINING or one.changes
        if not re.match(r"(#.*\n)?[!%]|docker", one.code):  # a command
            compile(one.code.replace(", ...)", ")"), found.rule, "exec")


@each_cause
def test_the_class_of_a_plain_sick_loop(loops: CauseLoops) -> None:
    family = next(family for family, causes in FAMILIES.items() if loops in causes)
    own = family if family in ("input", "transfer", "host") else "compute"
    assert diagnosed(next(iter(loops.sick.values())).run).bottleneck == (loops.bottleneck or own)


@each_cause
def test_what_was_not_recorded_fails_no_rule(loops: CauseLoops) -> None:
    recording = sick_recording(loops.cause)
    for less in (*without_columns(recording), *without_facts(recording)):
        named(diagnose(less))


def without_columns(recording: Recording) -> Iterator[Recording]:
    """Yields the recording without each of the measured columns of its steps."""
    for name in STEP_COLUMNS:
        column = getattr(recording.steps, name)
        if name.endswith("_s") and name not in ("wall_s", "start_s") and not np.isnan(column).all():
            yield with_columns(recording, **{name: np.nan})


def without_facts(recording: Recording) -> Iterator[Recording]:
    """Yields the recording without each of its known facts, and without each fact of its setup."""
    for fact in fields(Setup):
        if getattr(recording.setup, fact.name) != getattr(Setup(), fact.name):
            setup = replace(recording.setup, **{fact.name: getattr(Setup(), fact.name)})
            yield replace(recording, setup=setup)
    for name in ("series", "fetches", "lines", "chores", "traffic", "losses", "looks", "peak_bytes"):
        yield replace(recording, **{name: getattr(Recording(recording.steps), name)})


@each_cause
def test_well(loops: CauseLoops) -> None:
    assert named(diagnosed(loops.well)) == ()


@pytest.mark.parametrize(("cause", "run"), rows(NEAR))
def test_nearly_sick(cause: str, run: Any) -> None:
    assert cause not in named(diagnosed(run))


@pytest.mark.parametrize(("run", "causes"), rows(OTHER))
def test_another_cause(run: Any, causes: tuple[str, ...]) -> None:
    assert named(diagnosed(run)) == causes

"""One rule asked about one loop, or about its recording; and the whole diagnosis of it."""

from __future__ import annotations

from typing import cast

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding, Rule
from gpu_doctor.diagnosis.silent_rules import _ON_GPU
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from tests.support.recordings import Loop

BY_CAUSE = {cause.name: rule for rule in RULES for cause in rule.causes}
NEEDS = {cause.name: cause for rule in RULES for cause in rule.causes}


class Priced(Finding):
    """A finding that has a share."""

    cost_share: float


def rule(cause: str) -> Rule:
    """The rule that decides a cause."""
    return BY_CAUSE[cause]


def priced(cause: str, of: Loop | Recording) -> Priced | None:
    """What its rule finds of a cause, however little it costs; None also where a vital that it needs is missing."""
    found = next((one for one in BY_CAUSE[cause].all_findings(measure(_recording(of))) if one.rule == cause), None)
    if found is not None:
        assert (found.cost_share or 0.0) <= 1.0 and found.headline.endswith(".")
        assert (found.kind == "hint") == (found.cost_share is None)
        assert all("None" not in text for text in (found.headline, *found.evidence))
        for one in found.prescriptions:
            bounds = (one.predicted_low, one.predicted_speedup, one.predicted_high)
            if None not in bounds:
                assert bounds[0] <= bounds[1] <= bounds[2]  # type: ignore[operator]
    return cast("Priced | None", found)


def asked(cause: str, of: Loop | Recording) -> Priced | None:
    """What its rule finds of a cause that is to be named."""
    found = priced(cause, of)
    return found if found is not None and found.named else None


def sick(cause: str, of: Loop | Recording) -> Priced:
    """What its rule finds in a loop that has the problem, however little it costs."""
    found = priced(cause, of)
    assert found is not None, f"{cause} found nothing"
    return found


def surely(cause: str, of: Loop | Recording) -> Priced:
    """What its rule finds in a loop whose problem is to be named."""
    found = asked(cause, of)
    assert found is not None, f"{cause} named nothing"
    return found


def threat(cause: str, of: Loop | Recording) -> Priced:
    """What its rule finds; it must be a threat rather than a price."""
    found = surely(cause, of)
    assert found.risk.endswith(".")
    return found


def named(of: Loop | Recording) -> list[str]:
    """All causes that the diagnosis of the loop names, hints last."""
    diagnosis = _diagnosis(of)
    return [finding.rule for finding in (*diagnosis.findings, *diagnosis.hints)]


def top(of: Loop | Recording) -> str | None:
    """The rule that the diagnosis of the loop names first."""
    return next(iter(named(of)), None)


def silence(name: str, of: Loop | Recording) -> str:
    """Why the diagnosis did not ask the rule, empty if it did."""
    return next((one.reason for one in _diagnosis(of).silent if one.rule == name), "")


def _diagnosis(of: Loop | Recording) -> Diagnosis:
    return diagnose(_recording(of))


def _recording(of: Loop | Recording) -> Recording:
    return of.recording() if isinstance(of, Loop) else of


GPU_ONLY = tuple(
    one.name for one in NEEDS.values() if _ON_GPU.keys() & set(one.needs if one.cpu_needs is None else one.cpu_needs)
)
"""Rules of which nothing can be said where there is no GPU."""

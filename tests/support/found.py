"""One rule asked about one loop, or about its recording; and the whole diagnosis of it."""

from __future__ import annotations

from gpu_doctor.diagnosis import Diagnosis, diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding, Rule
from gpu_doctor.diagnosis.silent_rules import _ON_GPU
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from tests.support.one_cause import unsettled
from tests.support.recordings import Loop

BY_NAME = {rule.name: rule for rule in RULES}


def rule(name: str) -> Rule:
    """The rule of that name."""
    return BY_NAME[name]


def priced(name: str, of: Loop | Recording) -> Finding | None:
    """What the rule finds, however little it costs; None also where a vital that it needs is missing."""
    vitals = measure(_recording(of))
    if any(getattr(vitals, need) is None for need in BY_NAME[name].needed(vitals)):
        return None
    found = BY_NAME[name].check(vitals)
    if found is not None:
        assert found.rule == name and found.cost_share <= 1.0 and found.headline.endswith(".")
        assert all("None" not in text for text in (found.headline, *found.evidence))
        for one in found.prescriptions:
            bounds = (one.predicted_low, one.predicted_speedup, one.predicted_high)
            if None not in bounds:
                assert bounds[0] <= bounds[1] <= bounds[2]  # type: ignore[operator]
    return found


def asked(name: str, of: Loop | Recording) -> Finding | None:
    """What the rule finds that is to be named."""
    found = priced(name, of)
    return None if found is None else BY_NAME[name].finds(measure(_recording(of)))


def sick(name: str, of: Loop | Recording) -> Finding:
    """What the rule finds in a loop that has its problem, however little it costs; no second of it is billed twice."""
    found = priced(name, of)
    assert found is not None, f"{name} found nothing"
    assert found.cost_share >= 0.0
    assert unsettled(_diagnosis(of)) == [], "the same seconds twice, and `one_cause.STAND` has no reason"
    return found


def surely(name: str, of: Loop | Recording) -> Finding:
    """What the rule finds in a loop whose problem is to be named."""
    found = asked(name, of)
    assert found is not None, f"{name} named nothing"
    assert found.cost_share >= 0.0
    return found


def threat(name: str, of: Loop | Recording) -> Finding:
    """What the rule finds; it must be a threat rather than a price."""
    found = surely(name, of)
    assert found.risk.endswith(".")
    return found


def named(of: Loop | Recording) -> list[str]:
    """All rules that the diagnosis of the loop names."""
    return [finding.rule for finding in _diagnosis(of).findings]


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
    one.name for one in RULES if _ON_GPU.keys() & set(one.needs if one.cpu_needs is None else one.cpu_needs)
)
"""Rules of which nothing can be said where there is no GPU."""

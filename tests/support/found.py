"""One rule asked about one loop."""

from __future__ import annotations

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding, Rule
from tests.support.recordings import Loop

BY_NAME = {rule.name: rule for rule in RULES}


def rule(name: str) -> Rule:
    """The rule of that name."""
    return BY_NAME[name]


def asked(name: str, loop: Loop) -> Finding | None:
    """What the rule finds that is to be named; None also where a vital that it needs is missing."""
    found = priced(name, loop)
    return None if found is None else BY_NAME[name].finds(loop.vitals())


def priced(name: str, loop: Loop) -> Finding | None:
    """What the rule finds, however little it costs; None also where a vital that it needs is missing."""
    vitals = loop.vitals()
    if any(getattr(vitals, need) is None for need in BY_NAME[name].needed(vitals)):
        return None
    found = BY_NAME[name].check(vitals)
    if found is not None:
        assert found.rule == name
        assert found.cost_share <= 1.0
        assert found.headline.endswith(".")
        for one in found.prescriptions:
            bounds = (one.predicted_low, one.predicted_speedup, one.predicted_high)
            if None not in bounds:
                assert bounds[0] <= bounds[1] <= bounds[2]  # type: ignore[operator]
    return found


def sick(name: str, loop: Loop) -> Finding:
    """What the rule finds in a loop that has its problem, however little it costs."""
    found = priced(name, loop)
    assert found is not None, f"{name} found nothing"
    assert found.cost_share >= 0.0
    return found


def top(loop: Loop) -> str | None:
    """The rule that the diagnosis of the loop names first."""
    findings = diagnose(loop.recording()).findings
    return findings[0].rule if findings else None


def named(loop: Loop) -> list[str]:
    """All rules that the diagnosis of the loop names."""
    return [finding.rule for finding in diagnose(loop.recording()).findings]

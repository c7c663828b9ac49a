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
    """What the rule itself finds; None also where a vital that it needs is missing."""
    vitals = loop.vitals()
    if any(getattr(vitals, need) is None for need in BY_NAME[name].needed(vitals)):
        return None
    found = BY_NAME[name].finds(vitals)
    if found is not None:
        assert found.rule == name
        assert 0.0 <= found.cost_share <= 1.0
        assert found.headline.endswith(".")
        for one in found.prescriptions:
            bounds = (one.predicted_low, one.predicted_speedup, one.predicted_high)
            if None not in bounds:
                assert bounds[0] <= bounds[1] <= bounds[2]  # type: ignore[operator]
    return found


def sick(name: str, loop: Loop) -> Finding:
    """What the rule finds in a loop that has its problem."""
    found = asked(name, loop)
    assert found is not None, f"{name} found nothing"
    return found


def top(loop: Loop) -> str | None:
    """The rule that the diagnosis of the loop names first."""
    findings = diagnose(loop.recording()).findings
    return findings[0].rule if findings else None


def named(loop: Loop) -> list[str]:
    """All rules that the diagnosis of the loop names."""
    return [finding.rule for finding in diagnose(loop.recording()).findings]

"""What the tests of steady share."""

from __future__ import annotations

from gpu_doctor.diagnosis import Diagnosis
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals


def told(**costs: float) -> Diagnosis:
    """A diagnosis that found these rules at these costs."""
    findings = tuple(Finding(rule, f"{rule}.", cost) for rule, cost in sorted(costs.items(), key=lambda one: -one[1]))
    return Diagnosis("input", findings[0].headline if findings else "nothing", findings, (), Vitals())

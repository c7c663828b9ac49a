"""What one rule finds of its cause in a loop or its recording; all that the diagnosis names; why a rule is silent."""

from __future__ import annotations

from typing import cast

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.silent_rules import _ON_GPU
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from tests.support.recordings import Loop

BY_CAUSE = {cause.name: rule for rule in RULES for cause in rule.causes}
NEEDS = {cause.name: cause for rule in RULES for cause in rule.causes}
GPU_ONLY = tuple(
    one.name for one in NEEDS.values() if _ON_GPU.keys() & set(one.needs if one.cpu_needs is None else one.cpu_needs)
)
"""Causes of which nothing can be said where there is no GPU."""


class Priced(Finding):
    """A finding that has a share."""

    cost_share: float


def asked(cause: str, of: Loop | Recording) -> Priced | None:
    """What the cause's rule finds of it and names; None also where a vital that it needs is missing."""
    found = BY_CAUSE[cause].finds(measure(_recording(of)))
    return cast("Priced | None", next((one for one in found if one.rule == cause), None))


def sick(cause: str, of: Loop | Recording) -> Priced:
    """What the cause's rule finds in a loop that has the problem."""
    found = asked(cause, of)
    assert found is not None, f"{cause} found nothing"
    return found


def named(of: Loop | Recording) -> list[str]:
    """All causes that the diagnosis of the loop names, hints last."""
    diagnosis = diagnose(_recording(of))
    return [finding.rule for finding in (*diagnosis.findings, *diagnosis.hints)]


def silence(name: str, of: Loop | Recording) -> str:
    """Why the diagnosis did not ask the rule, empty if it did."""
    return next((one.reason for one in diagnose(_recording(of)).silent if one.rule == name), "")


def _recording(of: Loop | Recording) -> Recording:
    return of.recording() if isinstance(of, Loop) else of

"""The content of a diagnosis, and its form as plain, versioned data; the schema is `docs/reference/diagnosis.md`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpu_doctor.diagnosis.rules.rule import Finding, Prescription
from gpu_doctor.diagnosis.silent_rules import Silence
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.labels import PHASE_LABELS

VERSION: Final = 1
"""Version of the plain data. It rises when a key goes or means something else; a new key does not change it."""


def anatomy(vitals: Vitals) -> list[tuple[str, float, float]]:
    """Divides a mean step into its phases, by the host's clock.

    Args:
        vitals: vitals of the run.

    Returns:
        Phase, share of the wall-clock (0..1) and seconds of each phase that was measured and is not 0, in the order of
        a step; empty if no step was timed.
    """
    step_s = vitals.host_step_s
    if step_s is None:
        return []
    shares = ((phase, getattr(vitals, f"{phase}_share")) for phase in PHASE_LABELS)
    return [(phase, share, share * step_s) for phase, share in shares if share]


@dataclass(frozen=True)
class DiagnosisData:
    """The content of a diagnosis of one recording; its subclass `Diagnosis` adds how it is shown."""

    bottleneck: str
    """Bottleneck class: input, transfer, host, compute, memory, communication, or unknown."""
    verdict: str
    """One sentence for a person, with the figure."""
    findings: tuple[Finding, ...]
    """The findings in the order to show: the error that ended the run and those with `first`; losses of 10 % or more by
    share; bounds (at most) by share; smaller losses by share."""
    silent: tuple[Silence, ...]
    """Causes that could not be judged."""
    vitals: Vitals
    early: bool = False
    """True if fewer than 20 steps were measured (or calls of the closure, if the optimizer has one)."""
    hints: tuple[Finding, ...] = ()
    """Findings without a price: risks first, then what is worth a trial."""
    notes: tuple[str, ...] = ()
    """Further sentences for the user, such as on a comment that ignores a rule which does not exist."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the diagnosis as plain data in a versioned form, ready for JSON: `docs/reference/diagnosis.md`.

        A NaN becomes None, as JSON has no NaN; both mean not measured.
        """
        return {
            "version": VERSION,
            "bottleneck": self.bottleneck,
            "verdict": self.verdict,
            "early": self.early,
            "findings": [_finding(finding) for finding in self.findings],
            "hints": [_finding(hint) for hint in self.hints],
            "silent": [{"rule": silence.rule, "reason": silence.reason} for silence in self.silent],
            "vitals": _scalars(self.vitals),
            "anatomy": [{"phase": p, "share": share, "seconds": seconds} for p, share, seconds in anatomy(self.vitals)],
            "lines": [_plain(dataclasses.asdict(line)) for line in self.vitals.lines],
            "notes": list(self.notes),
        }


def _finding(finding: Finding) -> dict[str, Any]:
    """Converts a finding to plain data."""
    return {
        "rule": finding.rule,
        "kind": finding.kind,
        "cost_share": _plain(finding.cost_share),
        "headline": finding.headline,
        "risk": finding.risk,
        "evidence": list(finding.evidence),
        "prescriptions": [_prescription(cure) for cure in finding.prescriptions],
    }


def _prescription(cure: Prescription) -> dict[str, Any]:
    """Converts a prescription to plain data."""
    return {
        "text": cure.text,
        "safety": cure.safety.value,
        "settings": _plain(dict(cure.settings)),
        "code": cure.code,
        "changes": cure.changes,
        "predicted_speedup": _plain(cure.predicted_speedup),
        "predicted_low": _plain(cure.predicted_low),
        "predicted_high": _plain(cure.predicted_high),
    }


def _scalars(vitals: Vitals) -> dict[str, Any]:
    """Returns the vitals that are a number, a text or None; the cell's source is left out."""
    fields = {field.name: getattr(vitals, field.name) for field in dataclasses.fields(vitals) if field.name != "source"}
    return {
        name: _plain(value)
        for name, value in fields.items()
        if value is None or isinstance(value, (bool, int, float, str))
    }


def _plain(value: Any) -> Any:
    """Converts a value to plain JSON data: a NaN or an infinity becomes None, another type its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

"""What a diagnosis holds, and the same as plain, versioned data; its schema is `docs/reference/diagnosis.md`."""

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
"""It rises when a key goes or means something else; keys that are added do not change it."""


def anatomy(vitals: Vitals) -> list[tuple[str, float, float]]:
    """Where a mean step goes by the host's clock.

    Args:
        vitals: of the run.

    Returns:
        Phase, share of the wall-clock (0..1) and seconds of each phase that was measured and is not nothing, in the
        order of a step; empty where no step was timed.
    """
    step_s = vitals.host_step_s
    if step_s is None:
        return []
    shares = ((phase, getattr(vitals, f"{phase}_share")) for phase in PHASE_LABELS)
    return [(phase, share, share * step_s) for phase, share in shares if share]


@dataclass(frozen=True)
class DiagnosisData:
    """What `diagnose` says of one recording, without how it is shown: that stands above, in `Diagnosis`."""

    bottleneck: str
    """input, transfer, host, compute, memory, communication, or unknown."""
    verdict: str
    """One sentence for a person, with the figure."""
    findings: tuple[Finding, ...]
    """What ended the run or is said first; then what was lost, 10 % or more, by share; bounds (at most) by share; what
    was lost and is less."""
    silent: tuple[Silence, ...]
    vitals: Vitals
    early: bool = False
    """Fewer than 20 measured steps, or calls of the closure where the optimizer has one."""
    hints: tuple[Finding, ...] = ()
    """What nothing measured prices: risks first, then what is worth a trial."""
    notes: tuple[str, ...] = ()
    """What else is to be said, one sentence each, such as a rule to ignore that there is not."""

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data of a versioned form, ready for JSON: `docs/reference/diagnosis.md`.

        JSON has no NaN, which stands in a recording for what was not measured: it becomes None.
        """
        return {
            "version": VERSION,
            "bottleneck": self.bottleneck,
            "verdict": self.verdict,
            "early": self.early,
            "findings": [_finding(one) for one in self.findings],
            "hints": [_finding(one) for one in self.hints],
            "silent": [{"rule": one.rule, "reason": one.reason} for one in self.silent],
            "vitals": _scalars(self.vitals),
            "anatomy": [{"phase": p, "share": share, "seconds": seconds} for p, share, seconds in anatomy(self.vitals)],
            "lines": [_plain(dataclasses.asdict(one)) for one in self.vitals.lines],
            "notes": list(self.notes),
        }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "kind": one.kind,
        "cost_share": _plain(one.cost_share),
        "headline": one.headline,
        "risk": one.risk,
        "evidence": list(one.evidence),
        "prescriptions": [_prescription(cure) for cure in one.prescriptions],
    }


def _prescription(one: Prescription) -> dict[str, Any]:
    return {
        "text": one.text,
        "safety": one.safety.value,
        "settings": _plain(dict(one.settings)),
        "code": one.code,
        "changes": one.changes,
        "predicted_speedup": _plain(one.predicted_speedup),
        "predicted_low": _plain(one.predicted_low),
        "predicted_high": _plain(one.predicted_high),
    }


def _scalars(vitals: Vitals) -> dict[str, Any]:
    """The vitals that are a number, a word or not measured; the cell's text stays in the recording."""
    fields = {field.name: getattr(vitals, field.name) for field in dataclasses.fields(vitals) if field.name != "source"}
    return {
        name: _plain(one) for name, one in fields.items() if one is None or isinstance(one, (bool, int, float, str))
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)

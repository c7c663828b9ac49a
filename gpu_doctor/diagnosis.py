"""The bottleneck class, every rule asked, dearest finding first, the silent ones named."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_doctor.rules.rule import Finding
from gpu_doctor.vitals import Vitals


@dataclass(frozen=True)
class Silence:
    """A rule that could not judge, and why: the vitals it lacks, or that the cell told it to be quiet."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` says of one recording."""

    bottleneck: str
    """input, transfer, host, compute, memory, communication, or unknown."""
    verdict: str
    """One sentence for a person, with the figure."""
    findings: tuple[Finding, ...]
    """Dearest first."""
    silent: tuple[Silence, ...]
    vitals: Vitals
    early: bool = False
    """Fewer than 20 measured steps."""

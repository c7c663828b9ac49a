"""Loops that make costly calls besides training."""

from __future__ import annotations

import dataclasses

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules import RULES
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from gpu_doctor.recording.setup import Chore
from tests.support.recordings import Loop

CHECKS = {rule.name: rule.finds for rule in RULES}


def calling(loop: Loop, kind: str, share: float, calls: int, nbytes: float = float("nan")) -> Recording:
    """The loop with `calls` calls of a kind that take `share` of the wall-clock of all of its steps."""
    recording = loop.recording()
    seconds = share * float(recording.steps.wall_s.sum())
    chore = Chore(kind, calls, seconds, nbytes, "<cell>", 9, "<module>", f"{kind}()", seconds)
    return dataclasses.replace(recording, chores=(chore,))


def found(rule: str, recording: Recording) -> Finding | None:
    """What the rule finds in the recording."""
    return CHECKS[rule](measure(recording))


def named(recording: Recording) -> list[str]:
    """All rules that the diagnosis names."""
    return [finding.rule for finding in diagnose(recording).findings]

"""One rule asked about one recording, for loops of which more is known than their milliseconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpu_doctor.diagnosis import diagnose
from gpu_doctor.diagnosis.rules.rule import Finding
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import Recording
from tests.support.found import asked
from tests.support.recordings import Loop


@dataclass(frozen=True)
class Told(Loop):
    """A loop whose recording has further fields, such as its traffic."""

    told: Any = None
    """Further fields of Recording, a mapping."""

    def recording(self) -> Recording:
        return replace(super().recording(), **(self.told or {}))

    def vitals(self) -> Vitals:
        return measure(self.recording())


def with_more(loop: Loop, **told: Any) -> Told:
    """The loop, and what else its recording says."""
    return Told(**{name: getattr(loop, name) for name in Loop.__dataclass_fields__}, told=told)


def threat(name: str, loop: Loop) -> Finding:
    """What the rule finds; it must be a threat rather than a price."""
    found = asked(name, loop)
    assert found is not None and found.risk.endswith(".")
    return found


def silence(name: str, loop: Loop) -> str:
    """Why the diagnosis did not ask the rule, empty if it did."""
    return next((one.reason for one in diagnose(loop.recording()).silent if one.rule == name), "")

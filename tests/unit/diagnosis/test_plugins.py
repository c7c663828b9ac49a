"""What is open to rules of other packages is there; without such packages nothing is added."""

from __future__ import annotations

import dataclasses

from gpu_doctor.diagnosis import RULES, Vitals
from gpu_doctor.diagnosis.rules import every_rule
from gpu_doctor.diagnosis.rules.plugins import OPEN_VITALS, Plugins, plugins


def test_what_is_open_is_a_field_of_vitals() -> None:
    fields = {one.name for one in dataclasses.fields(Vitals)}
    assert [name for name in OPEN_VITALS if name not in fields and not hasattr(Vitals, name)] == []
    assert len(OPEN_VITALS) == len(set(OPEN_VITALS))


def test_no_package_means_our_rules_alone() -> None:
    assert plugins() == Plugins()
    assert every_rule() == RULES

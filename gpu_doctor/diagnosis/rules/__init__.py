"""The shelf of rules: every known state in which a loop keeps its device waiting, and the causes of each.

A module decides one state and is listed in MODULES of its family.
"""

from __future__ import annotations

from gpu_doctor.diagnosis.rules import compute, distributed, hardware, host, input, memory, transfer
from gpu_doctor.diagnosis.rules.plugins import plugins
from gpu_doctor.diagnosis.rules.rule import Cause, Rule, rule_of

FAMILIES = (input, transfer, host, compute, memory, hardware, distributed)
RULES: tuple[Rule, ...] = tuple(rule_of(module) for family in FAMILIES for module in family.MODULES)
CAUSES: tuple[Cause, ...] = tuple(cause for rule in RULES for cause in rule.causes)
"""The causes of our own rules, each with a page."""


def every_rule() -> tuple[Rule, ...]:
    """Ours, and those of other packages."""
    return (*RULES, *plugins().rules)


def every_cause() -> tuple[Cause, ...]:
    """The causes of all rules, ours and those of other packages."""
    return tuple(cause for rule in every_rule() for cause in rule.causes)

"""All rules, by family. Each module decides one state in which a loop wastes time; MODULES of its family lists it."""

from __future__ import annotations

from gpu_doctor.diagnosis.rules import compute, distributed, hardware, host, input, memory, transfer
from gpu_doctor.diagnosis.rules.plugins import plugins
from gpu_doctor.diagnosis.rules.rule import Cause, Rule, rule_of

FAMILIES = (input, transfer, host, compute, memory, hardware, distributed)
RULES: tuple[Rule, ...] = tuple(rule_of(module) for family in FAMILIES for module in family.MODULES)
CAUSES: tuple[Cause, ...] = tuple(cause for rule in RULES for cause in rule.causes)
"""Causes of the built-in rules."""


def every_rule() -> tuple[Rule, ...]:
    """Returns the built-in rules and those of other packages."""
    return (*RULES, *plugins().rules)


def every_cause() -> tuple[Cause, ...]:
    """Returns the causes of all rules, built-in and of other packages."""
    return tuple(cause for rule in every_rule() for cause in rule.causes)

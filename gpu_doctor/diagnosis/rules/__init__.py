"""The shelf of rules: every known reason for a loop that keeps its device waiting.

One file each, listed in MODULES of its family.
"""

from __future__ import annotations

from gpu_doctor.diagnosis.rules import compute, distributed, hardware, host, input, memory, transfer
from gpu_doctor.diagnosis.rules.plugins import plugins
from gpu_doctor.diagnosis.rules.rule import Rule, rule_of

FAMILIES = (input, transfer, host, compute, memory, hardware, distributed)
RULES: tuple[Rule, ...] = tuple(rule_of(module) for family in FAMILIES for module in family.MODULES)


def every_rule() -> tuple[Rule, ...]:
    """Ours, and those of other packages."""
    return (*RULES, *plugins().rules)

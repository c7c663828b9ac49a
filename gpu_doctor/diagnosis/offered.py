"""Which cures a trial can try in the loop at hand: what its knobs would refuse is left to the hand, and said so.

The diagnosis runs where there is no torch, which the knobs need, so what they ask of a loop stands here as a table;
`tests/unit/diagnosis/test_offered.py` holds it against them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.measure import Vitals

BY_OPTIMIZER: Final = ("amp", "channels_last", "compile", "fused_optimizer")
"""Knobs that find the model by the optimizer that steps it: a loop that predicts, or updates by hand, has none."""
NO_OPTIMIZER: Final = "no optimizer of torch steps in this loop, and by it a trial would find the model"


def offered(finding: Finding, vitals: Vitals) -> Finding:
    """The finding with each cure whose settings would be refused in this loop as one by hand."""
    if vitals.setup.optimizers:
        return finding
    return replace(finding, prescriptions=tuple(_by_hand(one) for one in finding.prescriptions))


def _by_hand(one: Prescription) -> Prescription:
    if not any(name in BY_OPTIMIZER for name in one.settings):
        return one
    return replace(one, safety=Safety.BY_HAND, settings={}, text=f"{one.text} (not by a trial: {NO_OPTIMIZER})")

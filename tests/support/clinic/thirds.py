"""A third of the patients that no forecast is tuned on, chosen by a seed alone.

Each family's patients with a gain to foretell are put into an order by the hash of the seed and their names. Every
third is held back, counted from a place that the hash of the family says. A family of three or more is thus
represented, and a new patient changes the choice within its own family only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from tests.support.clinic.cell import Cell, Patient

HELD_BACK = "held-back"
TUNING = "tuning"


def may_be_foretold(patient: Patient) -> bool:
    """Whether a gain can be timed, so that what was forecast can be judged."""
    if patient.healthy:
        return False
    return not patient.dies if isinstance(patient, Cell) else patient.cured is not None


def third(name: str, family: str, patients: Sequence[Patient], seed: int) -> list[Patient]:
    """The family's patients of a third, in their own order.

    Args:
        name: `held-back`, or `tuning` for those of the other two thirds.
    """
    foretold = [one for one in patients if may_be_foretold(one)]
    first = _number(f"{seed}:{family}") % 3
    held = set(_names(sorted(foretold, key=lambda one: _number(f"{seed}:{family}:{one.name}")))[first::3])
    return [one for one in foretold if (one.name in held) == (name == HELD_BACK)]


def _names(patients: Iterable[Patient]) -> list[str]:
    return [one.name for one in patients]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")

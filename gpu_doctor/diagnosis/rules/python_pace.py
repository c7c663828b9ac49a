"""How fast Python runs on the machine of a run, for thresholds in seconds that Python takes."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

ROUND_S: Final = 4.5e-8
"""CPU seconds of a round of a small loop (`capture/taps/python_cost.py`) on the machine that such thresholds are of."""
PACES: Final = (0.4, 4.0)
"""Times that: beyond, it is another Python that is fast or slow, rather than the machine."""


def pace(vitals: Vitals) -> float:
    """How many times as long as there Python takes on the machine of a run; 1 where nobody timed it."""
    taken = vitals.setup.speeds.python_round_s
    return 1.0 if not taken else min(max(taken / ROUND_S, PACES[0]), PACES[1])

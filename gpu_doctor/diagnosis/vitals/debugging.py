"""The part of the backward passes in which torch's debugging aids (anomaly mode, profiler) were on."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

ON_SHARE: Final = 0.02
"""Smallest part of the backward passes that counts: an aid that is on for less is used on purpose, as by
`profile(schedule=...)`."""
_AIDS: Final = {"anomaly": ("anomaly_mode", "anomaly_share"), "profiler": ("profiler", "profiler_share")}


def debugging_aids_on(vitals: Vitals) -> dict[str, float]:
    """Returns the debugging aids in use: `anomaly` or `profiler` -> part of the backwards that ran with it, 0..1.

    The part is 1 if only the aid's switch was recorded.
    """
    flags, found = vitals.setup.flags, dict[str, float]()
    for name, (switch, share) in _AIDS.items():
        on = float(flags.get(share, bool(flags.get(switch))))
        writes = name == "profiler" or vitals.backward_share  # anomaly mode records no stacks in a loop that predicts
        if on >= ON_SHARE and writes:
            found[name] = on
    return found

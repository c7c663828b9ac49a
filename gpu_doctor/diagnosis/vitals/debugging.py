"""In which part of the backward passes torch's debugging aids were on."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

ON_SHARE: Final = 0.02
"""On for less than this part of them, an aid is looked at on purpose (`profile(schedule=...)`)."""
_AIDS: Final = {"anomaly": ("anomaly_mode", "anomaly_share"), "profiler": ("profiler", "profiler_share")}


def aids_on(vitals: Vitals) -> dict[str, float]:
    """`anomaly` and `profiler` -> the part of the backwards that ran with it; all where only its switch is known."""
    flags, found = vitals.setup.flags, dict[str, float]()
    for name, (switch, share) in _AIDS.items():
        on = float(flags.get(share, bool(flags.get(switch))))
        writes = name == "profiler" or vitals.backward_share  # predictions write no stack down
        if on >= ON_SHARE and writes:
            found[name] = on
    return found

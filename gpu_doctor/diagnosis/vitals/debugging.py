"""How long torch's debugging aids were on."""

from __future__ import annotations

from typing import Final

from gpu_doctor.diagnosis.vitals.fields import Vitals

ON_SHARE: Final = 0.02
"""On for less than this part of the run, an aid is looked at on purpose (`profile(schedule=...)`)."""
_AIDS: Final = {"anomaly": ("anomaly_mode", "anomaly_on_s"), "profiler": ("profiler", "profiler_on_s")}


def aids_on(vitals: Vitals) -> dict[str, float]:
    """`anomaly` and `profiler` -> the part of the run in which it was on; all of it where only its switch is known."""
    flags, found = vitals.setup.flags, dict[str, float]()
    for name, (switch, seconds) in _AIDS.items():
        on = float(bool(flags.get(switch)))
        if seconds in flags and vitals.run_s:
            on = min(float(flags[seconds]) / vitals.run_s, 1.0)
        writes = name == "profiler" or vitals.backward_share  # predictions write no stack down
        if on >= ON_SHARE and writes:
            found[name] = on
    return found

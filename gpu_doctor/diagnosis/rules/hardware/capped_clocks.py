"""The GPU's clocks are held below what the card can do, by a setting.

What it means
    Under load the clocks stay below the card's maximum, and no heat or failing power explains it: application or locked
    clocks are set, or the power limit was lowered.

Why it costs you
    Kernels that compute take longer by as much as the clock is lower. The cost assumes that all of them do: it is at
    most that.

What to try
    Reset the clocks, or restore the power limit; both need administrator rights.

When to leave it
    When the limit is intended: a power budget, less noise, or runs that are to be compared.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("sm_clock_mhz", "sm_clock_max_mhz", "throttled_share", "power_capped_share", "gpu_busy_share")

BELOW_SHARE = 0.9
"""Of the maximum: cards listed with a boost that they seldom reach stay above it."""
HELD_SHARE = 0.5
"""Of the readings under load."""
LOW_SHARE = 0.7
"""Of the maximum, without any reason given: drivers do not name locked clocks always."""
FULL_PCT = 90.0
"""Of NVML's utilization, without any reason given: in pauses the driver may lower the clocks to save power."""
THROTTLED_SHARE = 0.05
"""From here on it is heat or power (throttled)."""
POWER_CAP_SHARE = 0.95
"""Of the limit that the card was delivered with, as in the check-up."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a setting, and nothing else, holds the clocks under load."""
    clock, best, busy = vitals.sm_clock_mhz, vitals.sm_clock_max_mhz, vitals.gpu_busy_share
    capped, throttled, held = vitals.power_capped_share, vitals.throttled_share, vitals.held_share or 0.0
    if clock is None or not best or capped is None or throttled is None or busy is None:
        return None
    if clock >= BELOW_SHARE * best or throttled >= THROTTLED_SHARE:
        return None
    limit, default = vitals.power_limit_w, vitals.power_default_w
    lowered = limit is not None and default is not None and limit < POWER_CAP_SHARE * default
    if capped >= HELD_SHARE:
        if not lowered or default is None:
            return None  # at its own power limit, as a busy card is
        what, cure = (
            f"the power limit is {formatting.whole(limit, 'W')} of the card's {formatting.whole(default, 'W')}",
            f"nvidia-smi -pl {round(default)}",
        )
    elif held >= HELD_SHARE or (
        clock < LOW_SHARE * best and capped == 0.0 and (vitals.gpu_util_pct or 0.0) >= FULL_PCT
    ):
        what, cure = "application or locked clocks are set", "nvidia-smi -rgc && nvidia-smi -rac"
    else:
        return None
    lost = 1.0 - clock / best
    return Finding(
        rule="capped-clocks",
        headline=f"The GPU's clocks are {formatting.share(lost)} below its maximum: {what}.",
        cost_share=lost * busy,
        evidence=(f"SM clock {formatting.whole(clock, 'MHz')} under load, {formatting.whole(best, 'MHz')} at most",),
        prescriptions=(Prescription("Remove the limit (needs administrator rights)", Safety.BY_HAND, code=f"!{cure}"),),
    )

"""Rule for a GPU whose clocks stay below its maximum while it is busy: because of heat or power, or by a setting.

The price is a bound: it assumes that every kernel takes longer by as much as the clock is lower. Kernels that wait for
memory suffer less.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

CAUSES: Final = (
    Cause(
        "throttled",
        """
        The GPU runs at a lower clock because of heat, its power supply, or its group.

        What it means
            For each reading under load, NVML gives the reasons for a lower clock. Here they are heat, the power supply
            or sync boost. Idling and the power limit, which every busy card reaches, do not count.

        Why it costs you
            Kernels that compute take longer by as much as the clock is lower. The cost is a bound: kernels that wait
            for memory suffer less.

        What to try
            Check airflow, dust, the room's temperature, the power cables and the server's power settings. On a rented
            machine, ask for another one.

        In code
            $ nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER

        When to leave it
            Leave it if it lasts for seconds at the start of a run and the clocks recover.
        """,
        ("throttled_share", "throttle_shares", "sm_clock_max_mhz", "gpu_busy_share"),
    ),
    Cause(
        "capped-clocks",
        """
        A setting holds the GPU's clocks below what the card can do.

        What it means
            Under load the clocks stay below the card's maximum, and neither heat nor the power supply is the reason.
            Application clocks or locked clocks are set, or the power limit was lowered.

        Why it costs you
            Kernels that compute take longer by as much as the clock is lower. The cost is a bound: kernels that wait
            for memory suffer less.

        What to try
            Reset the clocks, or restore the power limit. Both need administrator rights.

        In code
            $ nvidia-smi -q -d CLOCK,POWER  # the limits, and the card's own
            $ nvidia-smi -rgc && nvidia-smi -rac

        When to leave it
            Leave it if the limit is intended: a power budget, less noise, or runs that you compare.
        """,
        ("sm_clock_mhz", "sm_clock_max_mhz", "throttled_share", "power_capped_share", "gpu_busy_share"),
    ),
)

BELOW_SHARE: Final = 0.9
"""Part of the maximum clock below which a setting is looked for: cards that seldom reach their listed boost stay above
it."""
HELD_SHARE: Final = 0.5
"""Part of the readings under load in which a reason must hold the clocks to be the cause."""
LOW_SHARE: Final = 0.7
"""Part of the maximum clock below which locked clocks are assumed without a given reason: drivers do not always name
them."""
FULL_PCT: Final = 90.0
"""NVML utilisation, in per cent, that the same assumption needs: in pauses the driver may lower the clocks to save
power."""
POWER_CAP_SHARE: Final = 0.95
"""Part of the factory limit below which the power limit counts as lowered, as in the check-up."""


def check(vitals: Vitals) -> Finding | None:
    """Reports throttling by heat or power; only without it, a setting that holds the clocks."""
    if vitals.gpu_busy_share is None or not vitals.sm_clock_max_mhz or vitals.throttled_share is None:
        return None
    return _throttled(vitals) if vitals.throttled_share >= NAMING_BAR else _capped(vitals)


def _throttled(vitals: Vitals) -> Finding | None:
    """Reports a GPU that is throttled; None if its clock while throttled was not read."""
    share, shares, busy = vitals.throttled_share or 0.0, vitals.throttle_shares, vitals.gpu_busy_share or 0.0
    low, best = vitals.sm_clock_throttled_mhz, vitals.sm_clock_max_mhz or 0.0
    if not shares or low is None:
        return None
    free = vitals.sm_clock_free_mhz or 0.0
    usual = free if free > low else best
    cost = min(share * max(1.0 - low / usual, 0.0), 1.0) * busy
    reasons = [f"{words} in {formatting.share(part)} of the readings under load" for words, part in shares.items()]
    heat = f"; up to {_whole(vitals.temperature_c, '°C')}" if vitals.temperature_c is not None else ""
    clocks = f"SM clock {_whole(low, 'MHz')} while throttled, {_whole(usual, 'MHz')} otherwise{heat}"
    return Finding(
        rule="throttled",
        kind="at-most",
        headline=f"The GPU is throttled in {formatting.share(share)} of the readings under load: {next(iter(shares))} "
        f"(at most {formatting.share(cost)} to gain).",
        cost_share=cost,
        evidence=(*reasons[1:], clocks),
        prescriptions=(
            Prescription(
                "Check cooling, airflow and power cables; on a rented machine, ask for another one",
                Safety.BY_HAND,
                code="!nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
            ),
        ),
    )


def _capped(vitals: Vitals) -> Finding | None:
    """Reports a setting that holds the GPU's clocks below 90 % of their maximum."""
    clock, best, capped = vitals.sm_clock_mhz, vitals.sm_clock_max_mhz or 0.0, vitals.power_capped_share
    if clock is None or capped is None or clock >= BELOW_SHARE * best:
        return None
    found = _setting(vitals, clock < LOW_SHARE * best)
    if found is None:
        return None
    setting, cure = found
    cost = (1.0 - clock / best) * (vitals.gpu_busy_share or 0.0)
    return Finding(
        rule="capped-clocks",
        kind="at-most",
        headline=f"A setting holds the GPU's clocks below its maximum: {setting} (at most {formatting.share(cost)} to "
        "gain).",
        cost_share=cost,
        evidence=(f"SM clock {_whole(clock, 'MHz')} under load, {_whole(best, 'MHz')} at most",),
        prescriptions=(Prescription("Remove the limit (needs administrator rights)", Safety.BY_HAND, code=f"!{cure}"),),
    )


def _setting(vitals: Vitals, low: bool) -> tuple[str, str] | None:
    """Returns the setting that holds the clocks and the command that removes it; None if no setting does.

    Args:
        vitals: vitals of the run.
        low: True if the clocks are low enough to assume locked clocks without a given reason.
    """
    limit, default, capped = vitals.power_limit_w, vitals.power_default_w, vitals.power_capped_share or 0.0
    if capped >= HELD_SHARE:
        if limit is None or default is None or limit >= POWER_CAP_SHARE * default:
            return None  # a busy card reaches its own power limit
        setting = f"the power limit is {_whole(limit, 'W')} instead of the card's {_whole(default, 'W')}"
        return setting, f"nvidia-smi -pl {round(default)}"
    unnamed = low and capped == 0.0 and (vitals.gpu_util_pct or 0.0) >= FULL_PCT
    if (vitals.held_share or 0.0) >= HELD_SHARE or unnamed:
        return "application or locked clocks are set", "nvidia-smi -rgc && nvidia-smi -rac"
    return None


def _whole(value: float, unit: str) -> str:
    """Formats a reading without decimals: `1 410 MHz`, `70 W`, `91 °C`."""
    return f"{formatting.grouped(value)} {unit}"

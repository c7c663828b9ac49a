"""The GPU made itself slower: too hot, too little power, or held back by its group.

What it means
    NVML gives the reasons for which clocks were lowered at each reading under load. Here they name heat, the power
    supply, or sync boost; not idling, and not the power limit that every busy card runs into.

Why it costs you
    Kernels that compute take longer by as much as the clock is lower. The cost assumes that all of them do: it is at
    most that; kernels that wait for memory suffer less.

What to try
    Airflow, dust, the room; power cables and the server's power settings. On a rented machine, ask for another one.

When to leave it
    When it lasts for seconds at the start of a run and the clocks recover.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("throttled_share", "throttle_shares", "sm_clock_max_mhz", "gpu_busy_share")
EXCLUDES = ("capped-clocks",)


def check(vitals: Vitals) -> Finding | None:
    """Fires where readings under load name a reason; priced by the clock that is missing."""
    share, shares, busy = vitals.throttled_share, vitals.throttle_shares, vitals.gpu_busy_share
    low, best = vitals.sm_clock_throttled_mhz, vitals.sm_clock_max_mhz
    if share is None or not shares or busy is None or not best or low is None:
        return None
    usual = vitals.sm_clock_free_mhz if (vitals.sm_clock_free_mhz or 0.0) > low else best
    cost = min(share * (1.0 - low / (usual or best)), 1.0) * busy
    reasons = [f"{words} in {formatting.share(held)} of the readings under load" for words, held in shares.items()]
    clocks = f"SM clock {formatting.whole(low, 'MHz')} then, {formatting.whole(usual, 'MHz')} otherwise, "
    clocks += f"{formatting.whole(best, 'MHz')} at most"
    heat = f"; up to {formatting.whole(vitals.temperature_c, '°C')}" if vitals.temperature_c is not None else ""
    return Finding(
        rule="throttled",
        headline=f"The GPU is throttled: {next(iter(shares))} in {formatting.share(share)} of the readings under load.",
        cost_share=cost,
        evidence=(*reasons[1:], clocks + heat),
        prescriptions=(
            Prescription(
                "Check cooling, airflow and power cables; on a rented machine, ask for another one",
                Safety.BY_HAND,
                code="!nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER",
            ),
        ),
    )

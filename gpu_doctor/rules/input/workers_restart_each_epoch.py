"""Worker processes are started anew at every epoch, and the loop waits for them.

What it means
    Without `persistent_workers` each epoch starts its own processes; until their first batches are there, nothing
    trains.

Why it costs you
    The start of a worker (fork or spawn, imports, opening files) is paid once an epoch and worker. Short epochs pay
    most.

What to try
    `persistent_workers=True`: the processes stay and only begin the next epoch.

When to leave it
    When there is one epoch; when the dataset is changed between epochs and must reach the workers anew.
"""

from gpu_doctor.forecast import forecast
from gpu_doctor.rules.evidence import millis, percent
from gpu_doctor.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "workers", "edge_share", "epochs", "fetch_wall_s")


def check(vitals: Vitals) -> Finding | None:
    """Fires where epochs begin within the measured steps and their edges cost more than the first batch they hold.

    That batch has to be fetched whether workers stay or not; only the rest of an edge is the price of starting anew.
    """
    loader, fetch_s = vitals.loader, vitals.fetch_wall_s
    if loader is None or not vitals.workers or loader.persistent_workers or fetch_s is None or vitals.epochs is None:
        return None
    seen = forecast(vitals, {"persistent_workers": True})
    if seen is None:  # one epoch, or no edge in the measured steps
        return None
    cost = 1.0 - 1.0 / seen.speedup
    if cost < NAMING_BAR:
        return None
    refusal = loader.refusals.get("persistent_workers", "")
    edges, edge_s = vitals.epochs - 1, (vitals.edge_share or 0.0) * (vitals.step_wall_s or 0.0) * vitals.measured_steps
    return Finding(
        rule="workers-restart-each-epoch",
        headline=f"Workers start anew each epoch: {percent(cost)} of the time waits for them.",
        cost_share=cost,
        evidence=(
            f"{vitals.workers} worker processes, persistent_workers=False, start method {loader.start_method}",
            f"{edges} epoch{'s' * (edges > 1)} began in the measured steps, after {millis(edge_s / edges)} each; "
            f"fetching a batch takes {millis(fetch_s)} of that",
        ),
        prescriptions=(
            Prescription(
                text="Keep the workers over epochs",
                safety=Safety.BY_HAND if refusal else Safety.SAFE,
                settings={} if refusal else {"persistent_workers": True},
                code="DataLoader(..., persistent_workers=True)",
                predicted_speedup=seen.speedup,
                predicted_low=seen.low,
                predicted_high=seen.high,
            ),
        ),
    )

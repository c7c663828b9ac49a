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

from gpu_doctor.rules.evidence import percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("loader", "workers", "edge_share")

EDGE_SHARE = 0.05
"""The bar of the catalogue: below 5 % of the wall-clock an edge is not worth a change."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where epoch edges after the first cost at least 5 % and workers are not kept."""
    edge, loader = vitals.edge_share, vitals.loader
    if edge is None or loader is None or not vitals.workers or loader.persistent_workers or edge < EDGE_SHARE:
        return None
    gain = 1.0 / (1.0 - edge)
    return Finding(
        rule="workers-restart-each-epoch",
        headline=f"Workers start anew each epoch: {percent(edge)} of the time waits for them.",
        cost_share=edge,
        evidence=(f"{vitals.workers} worker processes, persistent_workers=False, start method {loader.start_method}",),
        prescriptions=(
            Prescription(
                text="Keep the workers over epochs (gains at most this)",
                safety=Safety.SAFE,
                settings={"persistent_workers": True},
                code="DataLoader(..., persistent_workers=True)",
                predicted_speedup=gain,
                predicted_low=1.0,
                predicted_high=gain,
            ),
        ),
    )

"""Evaluation passes take a large part of the run.

What it means
    Between training steps the loop runs the model over validation data; those passes are billed here, their batches
    too.

Why it costs you
    Nothing is learned meanwhile.

What to try
    Evaluate less often, on a fixed part of the data, with a larger batch, with workers of its own, and under
    `torch.inference_mode()`.

When to leave it
    When each evaluation decides something (early stopping, model selection) and the run is short anyway.
"""

from gpu_doctor.rules.evidence import hot_lines, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("evaluation_share",)

EVALUATION_SHARE = 0.20
"""The bar of the catalogue."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where evaluation takes at least a fifth of the wall-clock."""
    share = vitals.evaluation_share
    if share is None or share < EVALUATION_SHARE:
        return None
    return Finding(
        rule="heavy-evaluation",
        headline=f"Evaluation takes {percent(share)} of the time.",
        cost_share=share,
        evidence=hot_lines(vitals, ("evaluation",)),
        prescriptions=(
            Prescription(
                text="Evaluate half as often, or on a part of the data",
                safety=Safety.BY_HAND,
                code="if epoch % 2 == 0:\n    evaluate(model, val_loader)",
                predicted_speedup=1.0 / (1.0 - share / 2),
                predicted_low=1.0,
                predicted_high=1.0 / (1.0 - share),
            ),
        ),
    )

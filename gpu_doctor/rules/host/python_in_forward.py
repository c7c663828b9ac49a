"""The model's forward does work that its output does not depend on: statistics, prints, checks, kept activations.

What it means
    Statements of a `forward` are told apart by its text: those on which nothing that it returns depends, and which keep
    nothing that is read elsewhere in the cells. Looks at the running loop tell how long they take.

Why it costs you
    They run in every step, and often fetch values from the device or turn tensors into Python numbers one by one. In
    the anatomy of a step they look like computing.

What to try
    Take them out, or do them every n steps (`if self.training and self.step % 100 == 0`), on the device and for the
    whole tensor at once. Checks for NaN: `torch.autograd.detect_anomaly()` for a few steps when something is wrong.

When to leave it
    While you are debugging the model, and the steps are few.
"""

from gpu_doctor.removal import without
from gpu_doctor.rules import idling
from gpu_doctor.rules.evidence import dearest_lines, millis, percent
from gpu_doctor.rules.rule import Finding, Prescription, Safety
from gpu_doctor.vitals import Vitals

NEEDS = ("forward_share", "step_wall_s")

PYTHON_SHARE = 0.10
"""As for Python in the loop: TraceML 0.5 warns of a residual from 10 % on."""
SELDOM = ("Take it out of the forward, or do it every n steps", "if self.step % 100 == 0:\n    ...")


def check(vitals: Vitals) -> Finding | None:
    """Fires where such statements take a tenth of the wall-clock."""
    step_s, share = vitals.step_wall_s, idling.forward_aside(vitals)
    if step_s is None:
        return None
    if vitals.on_gpu:
        if vitals.gpu_gap_share is None:
            return None
        taken = (vitals.exposed_wait_share or 0.0) + (vitals.exposed_transfer_share or 0.0)
        taken += idling.idle_elsewhere(vitals) - share
        share = min(share, max(vitals.gpu_gap_share - taken, 0.0))
    if share < PYTHON_SHARE:
        return None
    gain = without(vitals, share)
    return Finding(
        rule="python-in-forward",
        headline=f"The model's forward does work that its output does not need: {percent(share)} of the time.",
        cost_share=share,
        evidence=(
            f"{millis(share * step_s)} of every {millis(step_s)} step",
            *dearest_lines((one for one in vitals.lines if idling.aside(one)), vitals.source),
        ),
        prescriptions=(
            Prescription(
                text=SELDOM[0],
                safety=Safety.BY_HAND,
                code=SELDOM[1],
                predicted_speedup=gain.speedup,
                predicted_low=gain.low,
                predicted_high=gain.high,
                at_most=True,
            ),
        ),
    )

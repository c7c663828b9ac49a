"""The model runs once more in every step, and nothing that trains reads what it gives.

What it means
    Beside the forward that the loss is computed from, the step calls the model again: for the accuracy of the batch,
    for a loss over other data, for a curve. The text of the step tells that neither the loss nor the update depends on
    it. How long it takes is measured where it records no gradients, else told by looks at the running loop; on a GPU it
    is a part of the device's own forward seconds (not yet run on one). In evaluation mode it is `heavy-evaluation`.

Why it costs you
    It computes as much as the forward that is trained on, and teaches the model nothing.

What to try
    Use the outputs that training has computed for the batch, detached. What needs a forward of its own (other data, the
    weights after the update) is as telling every hundred steps.

When to leave it
    When the figure decides something at each step (a line search, early stopping by the step).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules.compute.heavy_evaluation import FROM_TRAINING
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total

NEEDS = ("forward_share", "backward_share", "step_wall_s")

SELDOM = Prescription(
    text="What needs a forward pass of its own: every n steps, on as few samples as possible",
    safety=Safety.BY_HAND,
    code="if step % 100 == 0:\n    with torch.no_grad():\n        ...",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where forwards of statements that train nothing take a tenth of the wall-clock."""
    forward, step_s = vitals.forward_share, vitals.host_step_s
    if not forward or step_s is None or not vitals.backward_share:
        return None
    lines = [one for one in vitals.lines_in("forward") if one.no_grad]
    share = total(lines)
    if not vitals.looked_at(share):
        return None
    if vitals.on_gpu:  # the host is soon done with it, the GPU is not
        if vitals.gpu_forward_share is None:
            return None
        share = vitals.gpu_forward_share * min(share / forward, 1.0)
    if share < RESIDUAL_SHARE:
        return None
    gain = without(vitals, share)  # its code stays warm, the batch and what is made of it do not
    return Finding(
        rule="redundant-forward",
        headline=f"The model runs once more in each step, and training does not use it: {formatting.share(share)} of "
        "the time.",
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=(
            FROM_TRAINING.expecting(gain, at_most=True),
            SELDOM,
        ),
    )

"""The backward computes gradients of parameters that no optimizer steps.

What it means
    Only a part of the model is trained (often a new head on a pretrained backbone), but the rest still has
    `requires_grad=True`. Leaving it out of the optimizer does not freeze it: the backward goes through all of it.

Why it costs you
    Backward takes about twice as long as forward; for layers before the first trained one all of it is wasted, and
    their activations are kept for it. The gradients are never cleared by `optimizer.zero_grad()` and add up.

What to try
    `requires_grad_(False)` for what is not trained, or its forward under `torch.no_grad()`. What is trained gets the
    same gradients as before. Features of a frozen backbone that sees the same inputs each epoch can be computed once.

When to leave it
    When something else reads those gradients: an update written by hand, a saliency map, clipping over all of
    `model.parameters()` on purpose. A loop whose text mentions `.grad` is left alone.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("backward_share", "model")

BACKWARD_OF_STEP = 2.0 / 3.0
"""Of the device's arithmetic of a training step: 2 products a weight in the backward to 1 in the forward (Kaplan et
al. 2020, 2.1)."""
READS = re.compile(r"\.grad\b(?!_)")
"""Text that reads gradients itself."""
FORWARD_GAINS = (0.0, 0.17, 0.3)
"""Low, usual, high part of the forward that goes as well, since it records nothing more (eval-with-gradients: forwards
without gradients were 1.1 to 1.4 times as fast, in the middle 1.2)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where freezing what no optimizer steps would spare a part of the backward."""
    model, backward = vitals.model, vitals.backward_share
    if model is None or not model.unstepped or backward is None or READS.search(vitals.source):
        return None
    hidden = vitals.on_gpu and not vitals.gpu_outruns_host
    if hidden and vitals.gpu_busy_share is None:
        return None
    spent = (vitals.gpu_busy_share or 0.0) * BACKWARD_OF_STEP if hidden else backward
    least, most = model.spared_shares
    cost = spent * least
    if cost < NAMING_BAR:
        return None
    forward = 0.0 if hidden else vitals.forward_share or 0.0
    low, usual, high = (
        1.0 / (1.0 - min(part * (spent + gain * forward), 0.99))
        for part, gain in zip((least / 2.0, least, most), FORWARD_GAINS, strict=True)
    )
    return Finding(
        rule="unused-gradients",
        headline=f"The backward computes gradients that no optimizer uses, for about {formatting.share(cost)} of the "
        "time.",
        cost_share=cost,
        evidence=(
            f"{formatting.grouped(model.unstepped)} weights get a gradient in every backward pass that no optimizer "
            f"uses; the largest of these parameters is {model.unstepped_place}",
            f"the backward takes {formatting.share(backward)} of the time; by number of weights, "
            f"{formatting.share(least)} of its products are for them",
        ),
        prescriptions=(
            Prescription(
                text="Freeze what is not trained, before the optimizer is created",
                safety=Safety.BY_HAND,
                code="model.requires_grad_(False)\n"
                "model.head.requires_grad_(True)  # what your optimizer steps\n"
                "# or, where the frozen part is called by itself:\n"
                "with torch.no_grad():\n"
                "    features = backbone(inputs)",
                changes="The same updates; where gradients are clipped over all of model.parameters(), the norm is "
                "then of what is trained alone, and steps become larger.",
                predicted_speedup=usual,
                predicted_low=low,
                predicted_high=high,
            ),
        ),
    )

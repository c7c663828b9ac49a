"""The backward computes gradients that no optimizer steps by.

What it means
    Only a part of the model is trained (often a new head on a pretrained backbone), but the rest still has
    `requires_grad=True`. Leaving it out of the optimizer does not freeze it: the backward goes through all of it. Or
    two models are trained by turns, and one's loss goes through the other (a GAN's critic step through the generator,
    whose gradients are cleared before its own step).

Why it costs you
    Backward takes about twice as long as forward; for layers before the first trained one all of it is wasted, and
    their activations are kept for it. The gradients are never cleared by `optimizer.zero_grad()` and add up.

What to try
    `requires_grad_(False)` for what is not trained, or its forward under `torch.no_grad()`. What is trained gets the
    same gradients as before. In a critic's step, `generator(z).detach()`, or the call under `torch.no_grad()`; in the
    generator's, `requires_grad_(False)` on the critic and `True` again after it. Features of a frozen backbone that
    sees the same inputs each epoch can be computed once.

When to leave it
    When something else reads those gradients: an update written by hand, a saliency map, clipping over all of
    `model.parameters()` on purpose. A loop whose text mentions `.grad` is left alone.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.compute import eval_with_gradients
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import ModelFacts

NEEDS = ("backward_share", "model")

BACKWARD_OF_STEP = 2.0 / 3.0
"""Of the device's arithmetic of a training step: 2 products a weight in the backward to 1 in the forward (Kaplan et
al. 2020, 2.1)."""
READS = re.compile(r"\.grad\b(?!_)")
"""Text that reads gradients itself."""
BY_TURNS_TEXT = "Leave the model out of the backward that this step does not train"
BY_TURNS = """\
with torch.no_grad():
    fake = generator(z)  # the critic's step: its loss needs no gradients of the generator
critic.requires_grad_(False)  # the generator's step; True again after it"""


def check(vitals: Vitals) -> Finding | None:
    """Fires where freezing what no optimizer steps would spare a part of the backward."""
    model, backward = vitals.model, vitals.backward_share
    if model is None or not model.unstepped or backward is None or READS.search(vitals.source):
        return None
    if vitals.device_limits and vitals.gpu_busy_share is None:
        return None
    spent = (vitals.gpu_busy_share or 0.0) * BACKWARD_OF_STEP if vitals.device_limits else backward
    least, most = model.spared_shares
    cost = spent * least
    forward = 0.0 if vitals.device_limits else vitals.forward_share or 0.0  # it records nothing more
    parts = zip((least / 2.0, least, most), eval_with_gradients.GAINS, strict=True)
    low, usual, high = (part * (spent + (1.0 - 1.0 / gain) * forward) for part, gain in parts)
    return Finding(
        rule="unused-gradients",
        headline=f"The backward computes gradients that no optimizer uses, for about {formatting.share(cost)} of the "
        "time.",
        cost_share=cost,
        evidence=(
            _which(model),
            f"the backward takes {formatting.share(backward)} of the time; {formatting.share(least)} of its "
            "multiplications are for them alone",
        ),
        prescriptions=(
            Prescription(
                text=BY_TURNS_TEXT
                if model.gradients_cleared
                else "Freeze what is not trained, before the optimizer is created",
                safety=Safety.BY_HAND,
                code=BY_TURNS
                if model.gradients_cleared
                else "model.requires_grad_(False)\n"
                "model.head.requires_grad_(True)  # what your optimizer steps\n"
                "# or, where the frozen part is called by itself:\n"
                "with torch.no_grad():\n"
                "    features = backbone(inputs)",
                changes="The same updates; where gradients are clipped over all of model.parameters(), the norm is "
                "then of what is trained alone, and steps become larger.",
            ).saving(low, usual, high),
        ),
    )


def _which(model: ModelFacts) -> str:
    weights, largest = formatting.grouped(model.unstepped or 0), f"the largest of these is {model.unstepped_place}"
    if model.gradients_cleared:
        return f"{weights} weights get gradients that are cleared before an optimizer steps by them; {largest}"
    return f"{weights} weights get a gradient in every backward pass that no optimizer uses; {largest}"

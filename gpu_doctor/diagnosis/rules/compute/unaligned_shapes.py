"""Half-precision products have a width that is no multiple of 8, which tensor cores cannot read in full.

What it means
    A large layer (often the vocabulary of a language model) is, say, 50257 wide. Tensor cores read rows of 16 bytes: 8
    numbers in half precision; rows of another length start at odd addresses.

Why it costs you
    Such products run in slower kernels, some on no tensor core at all.

What to try
    Round the width up to a multiple of 8, better of 64: a padded vocabulary, a hidden size of 1024 rather than 1000.
    The extra rows are never a target and learn nothing.

When to leave it
    When the width comes with pretrained weights that must be loaded as they are, or the layer is a small part of the
    step.
"""

import math

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, half_precision
from gpu_doctor.diagnosis.rules.evidence import widths
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("gpu_busy_share", "model", "parameters")

ALIGNED = 8
"""Numbers of half precision in the 16 bytes that tensor cores read at once (NVIDIA's matrix multiplication guide)."""
ASSUMED_GAIN = 2.0
"""Price only: padding GPT-2's vocabulary from 50257 to 50304, a third of its weights, is reported to save a fifth to a
quarter of the step (A. Karpathy, nanoGPT): such a layer took more than twice as long as it had to."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU that is busy in half precision with large layers of odd width."""
    setup, busy, model = vitals.setup, vitals.gpu_busy_share, vitals.setup.model
    if busy is None or not setup.on_gpu or model is None or not model.unaligned or not setup.parameters:
        return None
    if vitals.dtype not in half_precision.HALVES or not gpu_pace.kernels_set_it(vitals):
        return None
    layers = [found for text in model.unaligned if (found := widths(text))]
    odd = max((width for one in layers for width in one if width % ALIGNED), default=0)
    if not odd:
        return None
    # Of one layer so many weights at least: a convolution's kernel is not counted.
    share = min(sum(math.prod(one) for one in layers) / setup.parameters, 1.0)
    cost = gpu_pace.at_most(vitals, busy * share * (1.0 - 1.0 / ASSUMED_GAIN))
    rows = next(iter(setup.inputs.shape if setup.inputs is not None else ()), 0)
    return Finding(
        rule="unaligned-shapes",
        headline=f"Widths that are no multiple of {ALIGNED} slow tensor cores down: layers with "
        f"{formatting.share(share)} of the weights.",
        cost_share=cost,
        evidence=(
            *model.unaligned[:3],
            f"{vitals.dtype} products, the GPU is busy {formatting.share(busy)} of the time; estimated for products "
            f"that take {formatting.average(ASSUMED_GAIN)} times as long as padded ones: measure it",
            *((f"batches of {rows} are no multiple of {ALIGNED} either",) if rows % ALIGNED else ()),
        ),
        prescriptions=(
            Prescription(
                text=f"Round {odd} up to a multiple of 64",
                safety=Safety.BY_HAND,
                code=f"width = {-(-odd // 64) * 64}  # instead of {odd}: vocabulary, classes or hidden size, padded",
                changes="The model gets a few more weights, which no target ever uses.",
            ),
        ),
    )

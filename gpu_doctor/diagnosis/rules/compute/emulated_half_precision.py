"""Half precision is used in a way that this GPU emulates, or float16 without a gradient scaler.

What it means
    bfloat16 is native from compute capability 8.0 on; older cards emulate it in float32. And float16 cannot represent
    numbers below 6e-8: without a GradScaler, small gradients become zero.

Why it costs you
    Emulated products run without tensor cores, slower than float16. Gradients that underflow do not train.

What to try
    float16 autocast with a `torch.amp.GradScaler` on cards before compute capability 8.0; on later ones bfloat16, which
    needs no scaler.

When to leave it
    When a loop scales its loss in a way that cannot be seen in its text, or only the memory that is saved matters.
"""

import re

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import half_precision
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import AMPERE

NEEDS = ("step_wall_s", "gpu")
EXCLUDES = ("channels-first-convolutions",)
"""They are about tensor cores, which emulated products do not use."""

BACKWARD = re.compile(r"(?<!accelerator)(?<!fabric)(?<!engine)\.backward\(")
"""The loop itself calls backward on a loss, so that a scaler would stand in its text too."""
SCALED = re.compile(r"scaler|GradScaler|\.scale\(|\bscale_loss\b|\*\s*loss_scale|loss_scale\s*\*", re.IGNORECASE)


def check(vitals: Vitals) -> Finding | None:
    """Fires on emulated bfloat16, and names float16 that nothing scales as a risk."""
    setup = vitals.setup
    if vitals.step_wall_s is None or not setup.on_gpu or "amp" in vitals.settings:
        return None
    if vitals.dtype == "bfloat16" and vitals.capability is not None and not vitals.at_least(AMPERE):
        return _emulated(vitals)
    scaled = SCALED.search(vitals.source) or not BACKWARD.search(vitals.source)
    return None if vitals.dtype != "float16" or scaled else _unscaled(vitals)


def _emulated(vitals: Vitals) -> Finding | None:
    setup, busy = vitals.setup, vitals.gpu_busy_share
    if busy is None or not half_precision.worth_a_trial(vitals):
        return None
    name = setup.card.name if setup.card is not None else "this GPU"
    predicts = vitals.predicts
    return Finding(
        rule="emulated-half-precision",
        headline=f"{name} emulates bfloat16: float16 is worth a trial.",
        cost_share=None,
        kind="hint",
        evidence=(
            f"{'autocast' if setup.autocast else 'the parameters'} in bfloat16 on a card without native bfloat16; the "
            f"GPU is busy {formatting.share(busy)} of the time",
            half_precision.bounded(vitals),
        ),
        prescriptions=(
            Prescription(
                text=f"Use float16 autocast{'' if predicts else ' with a gradient scaler'} on this card",
                safety=Safety.BY_HAND,
                code=half_precision.code(vitals, "float16"),
                changes="float16 has more bits and less range than bfloat16; compare the "
                f"{'results' if predicts else 'losses'}.",
            ),
        ),
    )


def _unscaled(vitals: Vitals) -> Finding:
    native = vitals.at_least(AMPERE)
    bf16 = half_precision.code(vitals, "bfloat16")
    cures = [Prescription(text="Scale the loss", safety=Safety.BY_HAND, code=half_precision.SCALED)]
    if native:
        cures.insert(0, Prescription(text="Use bfloat16, which needs no scaler", safety=Safety.BY_HAND, code=bf16))
    return Finding(
        rule="emulated-half-precision",
        headline="float16 without a gradient scaler: small gradients become zero.",
        cost_share=None,
        evidence=(
            f"{'autocast' if vitals.setup.autocast else 'the parameters'} in float16, and the cell calls backward "
            "without a GradScaler",
        ),
        prescriptions=tuple(cures),
        risk="Gradients below 6e-8 underflow to zero in float16, and the layers that get them stop learning.",
    )

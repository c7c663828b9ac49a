"""The model's forward does work that its output does not depend on, or makes the same constants anew in every step.

What it means
    Statements of a `forward`, and of forward hooks that return nothing, are told apart by their text. Some do nothing
    for the output: statistics, prints, checks, kept activations, on which nothing that is returned depends, and which
    keep nothing that is read in any text that the run has passed through. Others make the same in every step: anchors,
    grids, tables and masks that are made of plain values alone, not of the batch, the weights or chance. What is made
    of the batch's sizes (`torch.arange(x.size(1))`) is not named: the text does not tell whether they change. Looks at
    the running loop tell how long all that takes. GPU: not yet run on one.

Why it costs you
    They run in every step, and often fetch values from the device, turn tensors into Python numbers one by one, or
    make a tensor of a Python list. In the anatomy of a step they look like computing.

What to try
    Statistics: take them out, or do them every n steps (`if self.training and self.step % 100 == 0`), on the device and
    for the whole tensor at once. Checks for NaN: `torch.autograd.detect_anomaly()` for a few steps when something is
    wrong. Constants: make them once, in `__init__`, and keep them in a buffer, which moves with the model.

When to leave it
    While you are debugging the model, and the steps are few. A constant that would fill the memory is better made anew.
"""

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total

NEEDS = ("forward_share", "step_wall_s")

WORTH_SAYING: Final = 0.25
"""Of the whole: a kind of such work with less than that is not named."""
DOES: Final = {
    "model": "does work that its output does not need",
    "constant": "makes the same constants anew in every step",
}
"""What the forward does, by `LineCost.beside`; and what is to be done about it, with code:"""
CURES: Final = {
    "model": (
        "Take it out of the forward, or do it every n steps; remove a hook when it has done its work",
        "if self.step % 100 == 0:  # in the forward\n    ...\nhandle.remove()  # what register_forward_hook returned",
    ),
    "constant": (
        "Make them once, in __init__, and keep them in a buffer",
        'self.register_buffer("anchors", self.make_anchors(), persistent=False)  # in __init__\n'
        "anchors = self.anchors  # in the forward: it is where the model is",
    ),
}


def check(vitals: Vitals) -> Finding | None:
    """Fires where such statements take a tenth of the wall-clock."""
    step_s, share = vitals.host_step_s, gpu_idle.forward_aside(vitals)
    if step_s is None:
        return None
    if vitals.on_gpu:  # it stalls the GPU inside of the step, where its queue is empty
        if not vitals.gpu_outruns_host:
            return None
        share = min(share, vitals.gpu_forward_share or 0.0)
    if share < RESIDUAL_SHARE:
        return None
    gain = without(vitals, share)
    kinds = _kinds(vitals)
    does = " and ".join(DOES[one] for one in kinds)
    (text, code), *more = (CURES[one] for one in kinds)
    return Finding(
        rule="python-in-forward",
        headline=f"The model's forward {does}: {formatting.share(share)} of the time.",
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}",
            *dearest_lines(gpu_idle.aside_lines(vitals), vitals.source),
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
            ).expecting(gain, at_most=True),
            *(Prescription(f"{text} (where this applies)", Safety.BY_HAND, code=code) for text, code in more),
        ),
    )


def _kinds(vitals: Vitals) -> list[str]:
    """Which kinds of such work take a good part of it, the dearer first."""
    lines = gpu_idle.aside_lines(vitals)
    shares = {kind: total(one for one in lines if one.beside == kind) for kind in DOES}
    least = WORTH_SAYING * sum(shares.values())
    return sorted((kind for kind in DOES if shares[kind] >= least), key=lambda kind: -shares[kind])

"""The loss over classes is put together from softmax, logarithm and product instead of by one fused function.

What it means
    Between forward and backward the loss goes through all classes again and again: dense targets (`F.one_hot`) times
    `log_softmax`, which `F.cross_entropy` does too when it gets them, or a softmax whose logarithm is taken. Read off
    the graph of the first backward, by its operations and their shapes.

Why it costs you
    Each operation reads and writes a number for each row and class, forward and backward, and autograd keeps the
    results. softmax, log, product and sum are 16 passes over the logits; `F.cross_entropy` with class numbers makes 6.
    `one_hot` writes 8 bytes a number, and converts them. Measured on a CPU (torch 2.13, 1 thread, CPU seconds): 25 ms
    by hand and 6 ms fused for 384 rows of 8000 classes, 33 and 23 ms for the whole step of a small language model.

What to try
    `F.cross_entropy(logits, y)` with class numbers and without a softmax before it; `label_smoothing=0.1`, `weight=`
    and `ignore_index=` where you have them. Where targets are really soft (distillation, mixup), `F.log_softmax` for
    softmax and logarithm; for `log_softmax` times soft targets there is nothing faster, and nothing is said
    (`F.cross_entropy` with probabilities does the same by the same operations). The result is the same but for
    rounding.

When to leave it
    When the loss is another one (dice, focal), or when a number inside of the logarithm is meant to bound it. What else
    is computed between forward and backward is priced with it. GPU: not yet run on one; there targets are not looked
    at, and only what holds for any targets is priced.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, passes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import itemsize
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import LossByHand

NEEDS = ("gpu_busy_share", "gpu_forward_share", "gpu_backward_share", "gpu_optimizer_share")
CPU_NEEDS = ("loss_share", "backward_share")

LEAST_BYTES = 1 << 20
"""Smaller logits stay in caches, and what counts then is how many operations there are, not what they move."""
PASSES: Final[Mapping[str, tuple[int, int]]] = {
    "softmax": (2, 3),
    "log_softmax": (2, 3),
    "log": (2, 3),
    "clamp": (2, 3),
    "mul": (3, 2),
    "add": (2, 0),
    "sub": (3, 0),
    "neg": (2, 2),
    "scale": (2, 2),
    "div": (2, 2),
    "clone": (2, 0),
    "to": (2, 2),
    "sum": (1, 0),
    "mean": (1, 0),
    "gather": (0, 1),
    "index": (0, 1),
    "diagonal": (0, 1),
    "nll_loss": (0, 1),
}
"""Operation -> how often a number is read or written for each class, forward and backward, by what it takes and gives
(derivatives.yaml of torch)."""
FUSED: Final = {"indices": (2, 4), "one-hot": (2, 4), "smoothed": (3, 6)}
"""Labels -> the same of `F.cross_entropy`: log_softmax, and a gradient that is zero but for one class; with
`label_smoothing` a sum, and two gradients that are added."""
DENSE_TARGETS = 5
"""Passes over float32 that `F.one_hot(y, classes).float()` makes: 8 bytes a number written, read, and 4 written."""
GAINS: Final = (0.7, 0.9)
"""Low, usual: so many times what the passes say was saved (one machine's CPU, torch 2.13, 1 thread: 0.78 to 1.13 times
for five losses of 384 x 8000 and 256 x 2000 logits alone, by CPU seconds). Where the passes say the truth, the
price is a tenth too low. The most is no factor: a fused loss cannot save more than the one by hand takes, forth and
back, and nears that where memory is slow beside arithmetic."""
MAKES = re.compile(r"\bone_hot\b|\.scatter_?\(|\beye\(")
"""In the text of a cell that makes dense targets from class numbers."""
BY_NUMBERS: Final = (
    "Hand the logits and class numbers to one fused loss",
    "# y: class numbers, logits: without a softmax\n"
    "loss = F.cross_entropy(logits.flatten(0, -2), y.flatten())  # images, with classes in dimension 1: (logits, y)",
)
CURES: Final = {
    "indices": BY_NUMBERS,
    "one-hot": BY_NUMBERS,
    "smoothed": (
        "Hand the logits and class numbers to one fused loss that smooths them itself",
        "loss = F.cross_entropy(logits.flatten(0, -2), y.flatten(), label_smoothing=0.1)",
    ),
    "soft": (
        "Take the logarithm of the softmax in one operation",
        "logp = F.log_softmax(logits, -1)  # F.cross_entropy(logits, y), if each row has one right class",
    ),
}
TOLD: Final = {
    "indices": "the right class is told by its number",
    "one-hot": "the targets are dense, and each inspected row of them has one class",
    "smoothed": "the targets are dense, and in each inspected row of them one class stands out from equal others",
    "soft": "the targets are dense, and soft in the inspected rows",
    "": "the targets are dense; whether each row has one class was not looked at",
}


def check(vitals: Vitals) -> Finding | None:
    """Fires where a fused loss moves less, and the loss has its part in the time."""
    one, loss, backward = vitals.setup.loss_by_hand, passes.loss(vitals), passes.backward(vitals)
    if one is None or not loss or backward is None or not one.rows or not gpu_pace.kernels_set_it(vitals):
        return None
    nbytes = float(one.rows) * one.classes * itemsize(one.dtype)
    if nbytes < LEAST_BYTES:
        return None
    ahead, back = _passes(one.operations)
    fused_ahead, fused_back = _fused(one)
    made = DENSE_TARGETS if one.labels in ("one-hot", "smoothed") and MAKES.search(vitals.source) else 0
    a_pass = loss / (ahead + made)
    saved = a_pass * (ahead + made - fused_ahead) + min(a_pass * (back - fused_back), backward)
    parts = (*(saved * part for part in GAINS), loss + min(a_pass * back, backward))
    low, cost, high = (gpu_pace.at_most(vitals, one) for one in parts)
    fused_by = "cross_entropy" if one.labels in FUSED else "log_softmax"
    text, code = CURES[one.labels or "soft"]
    return Finding(
        rule="loss-by-hand",
        headline=f"The loss over {one.classes} classes is computed by hand: about {formatting.share(cost)} of the "
        f"time; `F.{fused_by}` does it at once.",
        cost_share=cost,
        evidence=(
            f"{', '.join(one.operations)}: each over {one.rows} rows of {one.classes} classes, "
            f"{formatting.size(nbytes)}; {TOLD[one.labels]}",
            f"they pass over that {ahead + made + back} times{', targets made' if made else ''}, forward and backward; "
            f"fused it takes {fused_ahead + fused_back}",
            f"{formatting.share(loss)} of the time lie between forward and backward, {formatting.share(backward)} in "
            "the backward; estimated as if all of the former were this loss",
        ),
        prescriptions=(
            Prescription(
                text=text,
                safety=Safety.BY_HAND,
                code=code,
                changes="The same loss but for rounding, and for what was added inside of the logarithm, if all "
                "batches have targets like those of the first, which was looked at.",
            ).saving(0.0 if vitals.on_gpu else low, cost, high),  # clipping is in the same seconds there
        ),
    )


def _passes(operations: Iterable[str]) -> tuple[int, int]:
    """Over all rows and classes, forward and backward."""
    forward, backward = zip(*(PASSES.get(name, (0, 0)) for name in operations), strict=True)
    return sum(forward), sum(backward)


def _fused(one: LossByHand) -> tuple[int, int]:
    """What is left of them: of soft targets, or such as nobody looked at, softmax and logarithm become one."""
    if one.labels in FUSED:
        return FUSED[one.labels]
    logged = one.operations.index("log") + 1 if "log" in one.operations else 1
    return _passes(("log_softmax" if "log" in one.operations else one.operations[0], *one.operations[logged:]))

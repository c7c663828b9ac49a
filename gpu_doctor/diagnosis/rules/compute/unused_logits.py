"""Logits over many classes are computed for positions that the loss leaves out.

What it means
    The last layer gives a number for each class at every position, and most positions have no part in the loss: their
    target is `ignore_index` (masked language models, prompts), their loss is multiplied by 0, or their logits are left
    out by an index. Read off the graphs of some backwards, with the targets that the loss keeps.

Why it costs you
    With a large vocabulary the last layer and the softmax are a large part of a step, forward and backward, and ignored
    positions cost as much as others. Their logits take memory, too: 8000 classes at 768 positions are 25 MB. What it
    costs here is measured on a CPU: after the run layer and loss are timed for all positions and for those that count.

What to try
    Pick the positions before the layer: `head(hidden[keep])` with `keep = labels != -100`. Models of transformers: call
    the model without its head (`model.bert(...)`, `model.model(...)`), then the head (`model.cls`, `model.lm_head`) on
    what you keep; `logits_to_keep=` for the last positions of causal models. On a GPU `hidden[keep]` waits for the
    device in every step: find the positions where the labels are made, on the CPU. GPU: not yet run on one.

When to leave it
    When the other logits are used as well (an accuracy over all positions), or when which positions count depends on
    the logits themselves (hard examples). With torch.compile the number of positions should be a constant.
"""

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_pace, passes
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.recording.setup import UnusedLogits

NEEDS = ("gpu_busy_share",)
CPU_NEEDS = ("forward_share", "backward_share")

UNUSED = 0.2
"""Part of the positions: padding and shifted labels leave some out in any loop (as for wasted-padding)."""
TOLD: Final = {
    "ignore_index": "the others have the target `ignore_index`",
    "mask": "the losses of the others are multiplied by 0",
    "index": "the losses of the others are left out by an index",
    "picked logits": "the logits of the others are left out by an index",
}
CODE: Final = {
    "ignore_index": "keep = labels.flatten() != -100\n"
    "logits = head(hidden.flatten(0, 1)[keep])  # hidden: what the last layer takes\n"
    "loss = F.cross_entropy(logits, labels.flatten()[keep])",
    "": "logits = head(hidden[keep])  # hidden: what the last layer takes, keep: the positions that count\n"
    "loss = F.cross_entropy(logits, labels[keep])",
}


def check(vitals: Vitals) -> Finding | None:
    """Fires where logits that the loss leaves out have their part in forward and backward."""
    one = vitals.setup.unused_logits
    if one is None or one.unused < UNUSED or not one.looked_at or not gpu_pace.kernels_set_it(vitals):
        return None
    found = _by_products(vitals, one) if vitals.on_gpu else passes.saved(vitals, one.longer_s)
    if found is None:
        return None
    low, cost, high = found
    rows, used = (formatting.average(count / one.looked_at) for count in (one.rows, one.used))
    return Finding(
        rule="unused-logits",
        headline=f"The loss leaves out {formatting.share(one.unused)} of the positions that logits over {one.classes} "
        f"classes are computed for: about {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{one.classes} classes from {one.width} numbers at {rows} positions, of which the loss reads {used}",
            f"{TOLD.get(one.told_by, TOLD['index'])}; counted in {formatting.count(one.looked_at, 'backward')}",
            _source(vitals, one),
        ),
        prescriptions=(
            Prescription(
                text="Pick the positions that count before the layer that makes the logits",
                safety=Safety.BY_HAND,
                code=CODE.get(one.told_by, CODE[""]),
                changes="The same loss but for rounding; there are no logits of the other positions.",
            ).saving(low, cost, high),
        ),
    )


def _by_products(vitals: Vitals, one: UnusedLogits) -> tuple[float, float, float] | None:
    """Shares of the wall-clock on a GPU, low, usual and high: the layer alone, and all if there were nothing else."""
    spent, part = passes.both(vitals), _part(vitals, one)
    if spent is None or part is None:
        return None
    usual, high = (gpu_pace.at_most(vitals, spent * one.unused * of) for of in (part, 1.0))
    return 0.0, usual, high


def _part(vitals: Vitals, one: UnusedLogits) -> float | None:
    """Part of the backward's multiplications that the layer makes; attention makes twice as many there as before."""
    if not one.all_products:
        return None
    attention = 2.0 * sum(calls.products for calls in vitals.setup.attention_calls or ())
    layer = float(one.sides) * one.rows / one.looked_at * one.classes * one.width
    return min(layer / (one.all_products + attention), 1.0)


def _source(vitals: Vitals, one: UnusedLogits) -> str:
    if vitals.on_gpu:
        spent = formatting.share(passes.both(vitals))
        return (
            f"the layer makes {formatting.share(_part(vitals, one))} of the products of a step, whose forward and "
            f"backward take {spent} of the time; what its loss takes comes on top"
        )
    longer = (one.longer_s or (0.0, 0.0))[1]
    return f"after the run this layer and its loss were timed: the other positions take {formatting.seconds(longer)}"

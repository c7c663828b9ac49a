"""The loss, or its gradients, are made piece by piece in a Python loop: over samples, pairs or boxes.

What it means
    Between forward and backward the step runs a loop of the user's, as its text tells, and the graph that the backward
    goes through has hundreds of operations for a handful of weights. Each handles one sample or one pair.
    Or a loop asks for the gradients of one sample after the other, `grad(scores[i], x)` or `losses[i].backward(...)`,
    though one call gives them all, as the text tells. Rows of a Jacobian and losses of several heads are left alone.

Why it costs you
    An operation on a few numbers takes some microseconds of Python and of torch's own bookkeeping, and as much again on
    the way back, however little there is to compute. On a GPU each is a kernel to be launched (not yet run on one).
    Each call for gradients goes back through the model with the whole batch, for one sample of it. With
    `create_graph=True` the last backward goes through all of them again.

What to try
    Compute it for all samples at once: index with tensors instead of a loop variable, compare with broadcasting
    (`z[:, None] - z[None, :]`), choose with a mask instead of `if`, sum once at the end. `torch.func.vmap` turns a
    function of one sample into one of a batch.
    Gradients: differentiate the sum. `torch.autograd.grad(scores.sum(), x)` gives each sample's own gradient in its
    row, and `losses.sum().backward()` adds up the same as a loop does.

When to leave it
    When the pieces are large themselves, or of sizes too different to be padded. Where samples influence one another
    (batch norm in training mode), the gradient of the sum is another one than each sample's own.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import part, total

NEEDS = ("loss_share", "backward_share", "step_wall_s")
EXCLUDES = ("launch-bound", "small-batch")

LOOPED = 0.5
"""Of the looks at the loss, those inside of a loop."""
MANY_OPERATIONS = 200
A_WEIGHT = 20.0
"""Operations of a graph for each tensor that gets gradients: plain networks have 2 to 10 (a linear layer 1.5, a
transformer's some 6), a loop over 64 samples with two weights 100 and more."""
OF_THE_MODEL = 10.0
"""As many of them are laid to the model, for each tensor."""
FEWEST = 8
"""Samples of a step from which on gradients of one after the other are told of; so many calls at least become one."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where a loop inside of the step makes the loss out of hundreds of operations.

    Or where it asks for its gradients of one sample at a time.
    """
    if vitals.device_limits:
        return None
    return _of_gradients(vitals) or _of_the_loss(vitals)


def _of_gradients(vitals: Vitals) -> Finding | None:
    """Of the calls that the text tells apart, and of what they leave for the backward to go through again."""
    backward, step_s, samples = vitals.backward_share, vitals.host_step_s, vitals.samples_per_step
    mine = [one for one in vitals.lines_in("backward") if one.one_by_one]
    asked = total(mine)
    if not asked or not backward or step_s is None or samples is None or samples < FEWEST:
        return None
    share = min(asked, backward) * (1.0 - 1.0 / FEWEST) + max(backward - asked, 0.0) * _in_pieces(vitals)
    if share < RESIDUAL_SHARE or not vitals.looked_at(asked):
        return None
    handed = any("grad(" in one.text for one in mine)
    code = (
        "gradients, = torch.autograd.grad(scores.sum(), inputs, create_graph=True)\n"
        "norms = gradients.flatten(1).norm(dim=1)  # one for each sample"
        if handed
        else "losses.sum().backward()  # adds up what one backward for each sample does"
    )
    only = ", if samples do not influence one another (batch norm)" if handed else ""
    return Finding(
        rule="loss-in-a-loop",
        headline=f"A Python loop asks for the gradients of one sample at a time: up to {formatting.share(share)} of "
        "the time.",
        cost_share=share,
        evidence=(
            f"these calls take {formatting.seconds(min(asked, backward) * step_s)} of every step of "
            f"{formatting.seconds(step_s)}, which trains on {formatting.count(samples, 'sample')}",
            *dearest_lines(mine, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text=f"Ask once for all samples: differentiate the sum{only}", safety=Safety.BY_HAND, code=code
            ),
        ),
    )


def _in_pieces(vitals: Vitals) -> float:
    """Share of a backward that goes through pieces, not through the model."""
    operations, leaves = vitals.setup.graph_operations, vitals.setup.graph_leaves
    if not operations or not leaves or operations < max(MANY_OPERATIONS, A_WEIGHT * leaves):
        return 0.0
    calls = max(vitals.inputs.per_step or 1.0, 1.0) if vitals.inputs is not None else 1.0
    return max(1.0 - OF_THE_MODEL * calls * leaves / operations, 0.0)


def _of_the_loss(vitals: Vitals) -> Finding | None:
    loss, backward, step_s = vitals.loss_share, vitals.backward_share, vitals.host_step_s
    operations, leaves = vitals.setup.graph_operations, vitals.setup.graph_leaves
    if loss is None or not backward or step_s is None or not operations or not leaves or loss < RESIDUAL_SHARE:
        return None
    if operations < max(MANY_OPERATIONS, A_WEIGHT * leaves):
        return None
    seen = [one for one in vitals.lines if one.before_backward]
    looped = [one for one in seen if one.looped]
    inside = part(looped, seen)
    if not inside or inside < LOOPED or not vitals.looked_at(total(looped)):
        return None
    share = loss * inside + backward * _in_pieces(vitals)
    return Finding(
        rule="loss-in-a-loop",
        headline=f"A Python loop computes the loss piece by piece: up to {formatting.share(share)} of the time, "
        "backward included.",
        cost_share=share,
        evidence=(
            f"of every step of {formatting.seconds(step_s)}, {formatting.seconds(loss * step_s)} lie between forward "
            f"and backward and {formatting.seconds(backward * step_s)} in the backward",
            f"the backward goes through {operations} operations for {leaves} tensors that get gradients",
            *dearest_lines(looped, vitals.source),
        ),
        prescriptions=(
            Prescription(
                text="Compute the loss for the whole batch at once: index, compare and choose with tensors",
                safety=Safety.BY_HAND,
                code="different = targets[:, None] != targets[None, :]  # every pair at once\n"
                "distances = torch.cdist(outputs, outputs)\n"
                "loss = distances.masked_fill(different, 0.0).mean()",
            ),
        ),
    )

"""Rule for a model or a loss that is computed one item of a batch at a time; counts of calls in a step show it."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import costliest_lines, hot_lines
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.in_turn import FEW_SHAPES, loss_in_pieces, model_in_turn
from gpu_doctor.recording.setup import InputFacts

PER_SAMPLE: Final = """
The model is called once for each item of a batch instead of once for all of them.

What it means
    The loop takes a batch from its loader and then calls the model with one sample, or one bag of instances, at a time.
    A step has as many forward passes as its batch has items. Each call reads all weights again and adds a graph of its
    own to the backward.

Why it costs you
    A layer takes hardly longer for 64 rows than for one, because it reads its weights once and is called once. On a GPU
    each call launches every kernel of the model. The backward consists of the same small pieces. The cost is a bound:
    the part of forward and backward beyond one item.

What to try
    Pass the whole batch to the model. Pad samples of different length and mask the padding, or put samples of the same
    length into one batch. For bags of instances, put the instances of all bags into one tensor, call the model once,
    and split its output by the bags' sizes. If something has to be done item by item, do it on the outputs.

In code
    # sick
    outputs = torch.stack([model(bag).mean(0) for bag in bags])
    # cured
    sizes = [len(bag) for bag in bags]
    outputs = torch.stack([part.mean(0) for part in model(torch.cat(bags)).split(sizes)])

When to leave it
    Leave it if one item keeps the device busy already, or if batch statistics (batch norm) would change the training.
"""
LOSS: Final = """
The loss is computed piece by piece in a Python loop: over samples, pairs or boxes.

What it means
    Between forward and backward the step runs hundreds of operations on tensors, more than its batch has samples. They
    were counted in the graph of the first backward. Each computes only a few numbers.

Why it costs you
    An operation takes some microseconds of Python and of torch's bookkeeping, and as much again in the backward,
    however little it computes. On a GPU each is a kernel to launch. The cost is a bound: the time of the loss and of
    its part of the backward.

What to try
    Compute the loss for all samples at once: index with tensors instead of a loop variable, compare by broadcasting,
    select with a mask instead of `if`, and sum once at the end. `torch.func.vmap` turns a function of one sample into
    one of a batch.

In code
    # sick
    loss = sum(
        (z[i] - z[j]).pow(2).sum() for i in range(n) for j in range(n) if y[i] == y[j]
    )
    # cured
    same = y[:, None] == y[None, :]
    loss = ((z[:, None] - z[None, :]).pow(2).sum(-1) * same).sum()

When to leave it
    Leave it if the pieces themselves are large, or differ too much in size to be padded.
"""
CAUSES: Final = (
    Cause("per-sample-forward", PER_SAMPLE, ("forward_share", "inputs")),
    Cause("loss-in-a-loop", LOSS, ("loss_share", "backward_share", "step_wall_s")),
)


def check(vitals: Vitals) -> Finding | None:
    """Reports a model that is called once per sample, or a loss with more operations than samples."""
    return _model(vitals) or _loss(vitals)


def _model(vitals: Vitals) -> Finding | None:
    """Reports a model that is called once for each sample of a batch."""
    inputs, samples = vitals.inputs, vitals.samples_per_step
    if inputs is None or samples is None or not model_in_turn(vitals):
        return None
    # One call for the batch also saves the loop over the items, whose Python lies outside the phases.
    spent = min(vitals.passes_share + max(vitals.outside_share, 0.0), 1.0)
    if vitals.on_gpu:  # it waits for launches, or kernels for one row take about as long as kernels for all rows
        launching = vitals.launching_share if vitals.gpu_outruns_host else None
        spent = launching or vitals.together("gpu_forward", "gpu_backward")
    share = spent * (1.0 - 1.0 / samples)
    if share < RESIDUAL_SHARE:
        return None
    forwards = inputs.per_step or 0.0
    shape = ", ".join(str(size) for size in inputs.shape)
    more = "or more " if forwards >= inputs.most_per_step else ""
    return Finding(
        rule="per-sample-forward",
        headline="The model is called once per item instead of once per batch (at most "
        f"{formatting.share(share)} to gain).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"{formatting.grouped(forwards)} {more}forward passes in a step of {formatting.count(samples, 'sample')}, "
            f"{'each' if inputs.shapes < FEW_SHAPES else 'mostly'} with a tensor of shape ({shape})",
            *hot_lines(vitals, ("forward",)),
        ),
        prescriptions=(_together(inputs),),
    )


def _together(inputs: InputFacts) -> Prescription:
    """Prescribes one call for the batch: of concatenated items, or of one tensor with all samples."""
    if len(inputs.shape) > 1 and inputs.shape[0] > 1:
        return Prescription(
            text="Call the model once for all items of the batch: concatenate them, and split the output by size",
            safety=Safety.BY_HAND,
            code="sizes = [len(item) for item in batch]\n"
            "outputs = model(torch.cat(batch)).split(sizes)  # one call; then pool each item's part",
        )
    pad = " Samples of different sizes are padded to one, or sorted by size into batches."
    return Prescription(
        text=f"Call the model once, with the whole batch.{pad if inputs.shapes > FEW_SHAPES else ''}",
        safety=Safety.BY_HAND,
        code="outputs = model(inputs)  # all samples of the batch in one call\nloss = criterion(outputs, targets)",
    )


def _loss(vitals: Vitals) -> Finding | None:
    """Reports a loss that is computed piece by piece; not on a GPU that limits its loop."""
    loss, backward, step_s = vitals.loss_share, vitals.backward_share, vitals.host_step_s
    pieces, operations = vitals.setup.loss_operations, vitals.setup.graph_operations
    if loss is None or not backward or step_s is None or not pieces or not operations or vitals.device_limits:
        return None
    if not loss_in_pieces(vitals):
        return None
    share = loss + backward * min(pieces / operations, 1.0)
    return Finding(
        rule="loss-in-a-loop",
        headline=f"The loss is computed piece by piece (at most {formatting.share(share)} to gain, backward included).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"each step of {formatting.seconds(step_s)} spends {formatting.seconds(loss * step_s)} between forward and "
            f"backward, and {formatting.seconds(backward * step_s)} in the backward",
            f"{pieces} of the {operations} operations in the backward come from code after the forward",
            *costliest_lines((line for line in vitals.lines if line.before_backward), vitals.source),
        ),
        prescriptions=(
            Prescription(
                text="Compute the loss for the whole batch at once: index, compare and select with tensors",
                safety=Safety.BY_HAND,
                code="different = targets[:, None] != targets[None, :]  # every pair at once\n"
                "distances = torch.cdist(outputs, outputs)\n"
                "loss = distances.masked_fill(different, 0.0).mean()",
            ),
        ),
    )

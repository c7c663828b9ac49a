"""The model is called once for each sample of a batch instead of once for all of them.

What it means
    The loop takes a batch from its loader and then hands the model one sample after the other. Each call reads all
    weights again, computes a product of one row, and leaves a graph of its own for the backward. The same between
    updates: a policy that is asked for each of its environments in turn, predictions for one thing after the other,
    where the text tells that no call needs what another one gave.

Why it costs you
    A layer's product of 64 rows takes little longer than that of one: the weights are read once, and the call's own
    cost is paid once. On a GPU each call launches every kernel of the model (not yet run on one). The backward is as
    long a chain of small pieces.

What to try
    Hand the model the whole batch. Samples of different length: pad them and mask what is padded, or sort those of a
    length into one batch. What must be done sample by sample (a loss with a condition) is done on the outputs.

When to leave it
    When one sample fills the device already, or batch statistics would change what is trained (batch norm).
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import dearest_lines, hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals import idle
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.lines import total
from gpu_doctor.recording import LineCost
from gpu_doctor.recording.setup import InputFacts

NEEDS = ("forward_share", "inputs")
EXCLUDES = ("launch-bound", "small-batch", "model-too-small", "loss-in-a-loop")

FEWEST = 8
"""Samples of a batch, and forwards in its step, from which on it is told: four tiles of an image are no batch."""
ALL_OF_THEM = 0.9
"""Forwards of a step over its samples: some may be left out."""
COMPUTING_SHARE = 0.10
"""Of the wall-clock: below, all of the computing is too little to matter."""


ONE_CALL = Prescription(
    text="Make one call for all of them: what each call is handed, stacked",
    safety=Safety.BY_HAND,
    code="states = torch.stack([env.state for env in envs])\n"
    "actions = act(states)  # one row for each, in one call\n"
    "for env, action in zip(envs, actions.tolist()):\n"
    "    env.step(action)",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where the model is called for one sample at a time: for all of a batch, or between the updates."""
    return _of_a_batch(vitals) or _between_updates(vitals)


def calls_in_turn(vitals: Vitals) -> list[LineCost]:
    """Line costs of calls of the model, one sample each, that are made in turn though none needs another's answer.

    What such a call does beside the forward (sampling an action, copies) is done as often, and is among them.
    """
    facts = (vitals.inputs, vitals.setup.idle_inputs)
    single = any(one is not None and one.looked_at >= FEWEST and _rows(one) == 1 for one in facts)
    mine = [one for one in vitals.lines_in("forward", "other") if one.one_by_one] if single else []
    calls = {one.one_by_one for one in mine if one.phase == "forward"}
    return [one for one in mine if one.one_by_one in calls]


def _rows(inputs: InputFacts) -> int:
    """Samples that the model is handed in a call: one where it gets a vector of numbers, as no batch has one."""
    if len(inputs.shape) > 1 or "int" in inputs.dtype:
        return inputs.shape[0] if inputs.shape else 1
    return 1


def _between_updates(vitals: Vitals) -> Finding | None:
    """Of the calls that the text tells apart: the host's seconds by looks, no more than a GPU with a queue idles."""
    lines = calls_in_turn(vitals)
    share = total(lines) * (1.0 - 1.0 / FEWEST)  # at least so many become one
    if vitals.on_gpu:
        share = min(share, max(vitals.gpu_idle_at_most - vitals.exposed_share, 0.0))
    if share < COMPUTING_SHARE or not vitals.looked_at(total(lines)):
        return None
    return Finding(
        rule="per-sample-forward",
        headline=f"The model is called for one thing after the other: up to {formatting.share(share)} of the time.",
        cost_share=share,
        evidence=("none of these calls needs what another one gave", *dearest_lines(lines, vitals.source)),
        prescriptions=(ONE_CALL,),
    )


def _of_a_batch(vitals: Vitals) -> Finding | None:
    """Where a step has about as many forwards as samples, each of one sample."""
    inputs, samples, loader = vitals.inputs, vitals.samples_per_step, vitals.loader
    if inputs is None or samples is None or loader is None or not vitals.backward_share or not inputs.shape:
        return None
    often = inputs.per_step
    if often is None or samples < FEWEST or often < max(FEWEST, ALL_OF_THEM * min(samples, inputs.most_per_step)):
        return None
    batch = round(samples / max(vitals.batches_per_step or 1.0, 1.0))
    if batch in inputs.shape[:2] or (inputs.shape[0] > 1 and len(inputs.shape) > 1 and inputs.shape[0] < batch):
        return None  # whole batches: a cell that is called for every time step; or parts of samples: crops
    spent = vitals.passes_share
    if vitals.on_gpu:  # its kernels of one row take about as long as those of all rows, and it waits for launches
        bound = vitals.gpu_outruns_host
        spent = (idle.launching(vitals) or 0.0) if bound else vitals.together("gpu_forward", "gpu_backward")
    share = spent * (1.0 - 1.0 / samples)
    if share < COMPUTING_SHARE:
        return None
    shape = ", ".join(str(one) for one in inputs.shape)
    each = "each" if inputs.shapes < 2 else "mostly"
    more = "or more " if often >= inputs.most_per_step else ""
    pad = "" if inputs.shapes <= 2 else " Samples of different sizes are padded to one, or sorted by size into batches."
    return Finding(
        rule="per-sample-forward",
        headline=f"The model is called for one sample at a time: up to {formatting.share(share)} of the time.",
        cost_share=share,
        evidence=(
            f"{formatting.grouped(often)} {more}forward passes in a step of {formatting.count(samples, 'sample')}, "
            f"{each} with a tensor of shape ({shape})",
            *hot_lines(vitals, ("forward",)),
        ),
        prescriptions=(
            Prescription(
                text=f"Call the model once, with the whole batch.{pad}",
                safety=Safety.BY_HAND,
                code="outputs = model(inputs)  # all samples of the batch in one call\n"
                "loss = criterion(outputs, targets)",
            ),
        ),
    )

"""Rule for forwards that do not train the model: evaluation, recording in evaluation, and a second forward."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import costliest_lines, hot_lines
from gpu_doctor.diagnosis.rules.rule import RESIDUAL_SHARE, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

HEAVY: Final = Cause(
    name="heavy-evaluation",
    needs=("evaluation_share",),
    page="""\
Evaluation takes a large part of the run.

What it means
    Between training steps the loop runs the model over validation data. This cause counts these passes and the loading
    of their batches. If no loader feeds the passes, they may also be rollouts (reinforcement learning) or generation,
    which make the data for training and call the model in the same way.

Why it costs you
    The model learns nothing meanwhile. The cost is a bound: all the time of the evaluation.

What to try
    Evaluate less often, on a fixed part of the data, with a larger batch, with workers of its own, and under
    `torch.inference_mode()`. For the accuracy on the training batch, use the outputs that training has computed. For
    rollouts, step several environments at once, so that one forward serves all of them.

In code
    # sick
    evaluate(model, val_loader)  # in every epoch
    # cured
    if epoch % 5 == 0:
        with torch.inference_mode():
            evaluate(model, val_loader)

When to leave it
    Leave it if each evaluation decides something (early stopping, model selection) and the run is short anyway. Leave
    rollouts: with half of them you have half of the data.
""",
)
RECORDED: Final = Cause(
    name="eval-with-gradients",
    needs=("forward_share", "evaluation_facts"),
    page="""\
Evaluation records gradients that nothing uses.

What it means
    The model is called in evaluation mode while gradients are enabled. `model.eval()` changes dropout and batch norm,
    but it does not turn off the recording of gradients.

Why it costs you
    Every operation records its backward and keeps its inputs until the output is freed, so the allocator takes new
    memory instead of reusing old. Peak memory is as high as in training, and transformer encoder layers do not take
    their fast path. The cost is a bound: all the time of these passes. A run without the recording shows how much of it
    is saved.

What to try
    Evaluate under `torch.inference_mode()`, or under `torch.no_grad()` if you train on the outputs later.

In code
    # sick
    model.eval()
    outputs = model(inputs)
    # cured
    model.eval()
    with torch.inference_mode():
        outputs = model(inputs)

When to leave it
    Leave it if you want the gradients (forces, saliency maps, attacks). Passes that a backward uses are not counted.
""",
)
AGAIN: Final = Cause(
    name="redundant-forward",
    needs=("forward_share", "backward_share", "step_wall_s", "no_grad_share"),
    page="""\
The trained model runs a second time in each step, without gradients.

What it means
    Besides the forward of the loss, the step calls the model again under `torch.no_grad()`, still in training mode: for
    the accuracy of the batch, for a plot, for a target. gpu_doctor measures how long that takes, but does not know what
    the outputs are for. In evaluation mode, the cause is `heavy-evaluation`.

Why it costs you
    It computes as much as the forward of the loss. The cost is a bound: all the time of these forwards.

What to try
    For a metric, use the outputs that training has computed, detached. If it needs a forward of its own (other data,
    the weights after the update), run it every hundred steps.

In code
    # sick
    with torch.no_grad():
        hits += (model(inputs).argmax(1) == targets).sum()
    # cured
    outputs = model(inputs)  # the forward of the loss
    hits += (outputs.detach().argmax(1) == targets).sum()

When to leave it
    Leave it if training needs the outputs: targets of self-training, samples of a generator, rollouts of a policy.
""",
)
CAUSES: Final = (HEAVY, RECORDED, AGAIN)

EVALUATION_SHARE: Final = 0.20
"""Share of the wall-clock from which on evaluation is reported; less is usual."""
EACH_STEP: Final = 0.5
"""Part of the steps from which on a loop that evaluates in them uses the training batch, not validation data."""
FEWEST: Final = 3
"""Fewest forwards that must record unused gradients: the first batch of a run may be a test."""
MOSTLY: Final = 0.5
"""Part of the inspected forwards that must record unused gradients for the recording to be the cause."""
FROM_TRAINING: Final = Prescription(
    text="For the accuracy on the training batch, use the outputs that training has computed already",
    safety=Safety.BY_HAND,
    code="outputs = model(inputs)  # as trained on\n"
    "hits += (outputs.detach().argmax(1) == targets).sum()  # no second forward",
    changes="The accuracy is then that of the outputs before the update, in training mode (dropout, batch statistics).",
)
SELDOM: Final = Prescription(
    text="If it needs a forward pass of its own, run it every n steps, on as few samples as possible",
    safety=Safety.BY_HAND,
    code="if step % 100 == 0:\n    with torch.no_grad():\n        ...",
)
UNRECORDED: Final = Prescription(
    text="Evaluate without recording gradients",
    safety=Safety.BY_HAND,
    code="with torch.inference_mode():\n    for inputs, targets in val_loader:\n        outputs = model(inputs)",
)
SEVERAL: Final = Prescription(
    text="If it collects training data, let one forward pass serve several environments or prompts",
    safety=Safety.BY_HAND,
    code="actions = policy(torch.stack(observations))  # of all environments at once",
)


def check(vitals: Vitals) -> tuple[Finding, ...]:
    """Reports evaluation, with one cause for its time, and forwards without gradients within the steps."""
    found = (_recorded(vitals) or _heavy(vitals), _again(vitals))
    return tuple(finding for finding in found if finding is not None)


def _heavy(vitals: Vitals) -> Finding | None:
    """Reports evaluation that takes at least a fifth of the wall-clock."""
    share = vitals.evaluation_share
    if share is None or share < EVALUATION_SHARE:
        return None
    if not _fed(vitals):
        return _passes(vitals, share)
    return Finding(
        rule=HEAVY.name,
        headline=f"Evaluation takes {formatting.share(share)} of the time (at most all of that to gain).",
        cost_share=share,
        kind="at-most",
        evidence=hot_lines(vitals, ("evaluation",)),
        prescriptions=(_less_often(vitals, "Evaluate half as often, or on a part of the data", "model, val_loader"),),
    )


def _passes(vitals: Vitals, share: float) -> Finding:
    """Builds the finding on passes that no evaluation loader feeds: evaluation, rollouts and generation look the same.

    Args:
        vitals: vitals of the run.
        share: share of the wall-clock that the passes take, 0..1.
    """
    each_step = (vitals.evaluated_steps_share or 0.0) >= EACH_STEP
    return Finding(
        rule=HEAVY.name,
        headline=f"Passes without gradients (evaluation, or rollouts) take {formatting.share(share)} of the time (at "
        "most all of that to gain).",
        cost_share=share,
        kind="at-most",
        evidence=("their batches did not come from a DataLoader", *hot_lines(vitals, ("evaluation",))),
        prescriptions=(
            *((FROM_TRAINING,) if each_step and vitals.loader is not None else ()),
            _less_often(vitals, "If it is evaluation, run it less often, or on a part of the data", "model"),
            SEVERAL,
        ),
    )


def _recorded(vitals: Vitals) -> Finding | None:
    """Reports evaluation forwards that recorded gradients which no backward used.

    Not on a GPU that limits its loop: its full queue hides the host's recording.
    """
    facts = vitals.evaluation_facts
    if facts is None or facts.with_gradients < max(FEWEST, MOSTLY * facts.forwards) or vitals.device_limits:
        return None
    trains = bool(vitals.setup.optimizers)
    # Evaluation that was not recognised counts as forward and makes the forward of its step long.
    spent = (vitals.evaluation_share or vitals.uneven_forward_share) if trains else vitals.forward_share
    if not spent:
        return None
    share = spent * facts.with_gradients / facts.forwards
    subject, phase = ("Evaluation", "evaluation") if trains else ("The model", "forward")
    less_often = _less_often(vitals, "Evaluate half as often, or on a part of the data", "model, val_loader")
    return Finding(
        rule=RECORDED.name,
        headline=f"{subject} records gradients that nothing uses (at most {formatting.share(share)} to gain).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"{facts.with_gradients} of {facts.forwards} forward passes in evaluation mode recorded "
            "gradients that no backward pass used",
            *hot_lines(vitals, (phase,) if vitals.evaluation_share else ("forward",)),
        ),
        prescriptions=(UNRECORDED, *((less_often,) if trains and share >= EVALUATION_SHARE else ())),
    )


def _again(vitals: Vitals) -> Finding | None:
    """Reports forwards of the trained model without gradients, in training mode, that take a tenth of the wall-clock.

    Loops with several optimizers (the generator's samples in a critic's step) and loops without a loader (rollouts) are
    left out: they do so on purpose.
    """
    share, step_s, forward = vitals.no_grad_share, vitals.host_step_s, vitals.forward_share
    own = vitals.setup.idle_inputs is not None and vitals.loader is not None and len(vitals.setup.optimizers) == 1
    if not share or not forward or step_s is None or not vitals.backward_share or not own:
        return None
    if vitals.on_gpu:  # the host only launches these forwards; the GPU takes longer
        if vitals.gpu_forward_share is None:
            return None
        share = vitals.gpu_forward_share * min(share / forward, 1.0)
    if share < RESIDUAL_SHARE:
        return None
    lines = [line for line in vitals.lines_in("forward") if line.no_grad]
    return Finding(
        rule=AGAIN.name,
        headline=f"The model runs a second time in each step, without gradients (at most {formatting.share(share)} to "
        "gain, if training does not need it).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"{formatting.seconds(share * step_s)} of each step of {formatting.seconds(step_s)}",
            *costliest_lines(lines, vitals.source),
        ),
        prescriptions=(FROM_TRAINING, SELDOM),
    )


def _fed(vitals: Vitals) -> bool:
    """True if the evaluation has a loader of its own."""
    return any(loader.role == "evaluation" for loader in vitals.setup.loaders)


def _less_often(vitals: Vitals, text: str, arguments: str) -> Prescription:
    """Prescribes to evaluate less often, every n epochs, or every n steps in a loop with one epoch.

    Args:
        vitals: vitals of the run.
        text: what to do, without a full stop.
        arguments: arguments of `evaluate` in the code to paste.
    """
    each_step = (vitals.evaluated_steps_share or 0.0) >= EACH_STEP
    when = "epoch % 2 == 0" if not each_step and (vitals.epochs or 1) > 1 else "step % 500 == 0"
    return Prescription(text, Safety.BY_HAND, code=f"if {when}:\n    evaluate({arguments})")

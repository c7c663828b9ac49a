"""The model runs in passes that teach it nothing, or teach nothing by themselves."""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import dearest_lines, hot_lines
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
    which make the data for training: the model is called in the same way.

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
    The model is called in evaluation mode while gradients are enabled. `model.eval()` changes dropout and batch norm;
    it does not turn the recording off.

Why it costs you
    Every operation records how to go backwards and keeps its inputs until the output is dropped, so the allocator
    touches new memory instead of reusing old. Peak memory is as high as in training, and transformer encoder layers do
    not take their fast path. The cost is a bound: all the time of these passes. A run without the recording shows how
    much of it is saved.

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
    Beside the forward of the loss, the step calls the model again under `torch.no_grad()`, still in training mode: for
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
"""Evaluation that takes less is usual."""
EACH_STEP: Final = 0.5
"""Of the steps: so often no validation data is gone through, but the batch at hand."""
FEWEST: Final = 3
"""Forwards that must have been seen to record in vain: the first batch of a run may be a try."""
MOSTLY: Final = 0.5
"""Of the forwards that were looked at: from here on the recording is the cause."""
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
    """Evaluation with the one cause of its seconds, and forwards without gradients within the steps."""
    found = (_recorded(vitals) or _heavy(vitals), _again(vitals))
    return tuple(one for one in found if one is not None)


def _heavy(vitals: Vitals) -> Finding | None:
    """Evaluation takes at least a fifth of the wall-clock."""
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
    """No evaluation loader delivered the batches: an evaluation, a rollout and a generation look alike."""
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
    """Evaluation forwards recorded gradients that no backward used, and the recording can take time.

    A GPU with a full queue does not wait for the host's recording.
    """
    facts = vitals.evaluation_facts
    if facts is None or facts.with_gradients < max(FEWEST, MOSTLY * facts.forwards) or vitals.device_limits:
        return None
    trains = bool(vitals.setup.optimizers)
    # A pass that nothing else tells from training makes the forward of its step long.
    spent = (vitals.evaluation_share or vitals.uneven_forward_share) if trains else vitals.forward_share
    if not spent:
        return None
    share = spent * facts.with_gradients / facts.forwards
    what, phase = ("Evaluation", "evaluation") if trains else ("The model", "forward")
    often = _less_often(vitals, "Evaluate half as often, or on a part of the data", "model, val_loader")
    return Finding(
        rule=RECORDED.name,
        headline=f"{what} records gradients that nothing uses (at most {formatting.share(share)} to gain).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"{facts.with_gradients} of {facts.forwards} forward passes in evaluation mode recorded "
            "gradients that no backward pass used",
            *hot_lines(vitals, (phase,) if vitals.evaluation_share else ("forward",)),
        ),
        prescriptions=(UNRECORDED, *((often,) if trains and share >= EVALUATION_SHARE else ())),
    )


def _again(vitals: Vitals) -> Finding | None:
    """Forwards of the trained model in training mode that recorded no gradients take a tenth of the wall-clock.

    Loops with several optimizers (the generator's samples in a critic's step) and loops without a loader (rollouts)
    call their models so on purpose.
    """
    share, step_s, forward = vitals.no_grad_share, vitals.host_step_s, vitals.forward_share
    own = vitals.setup.idle_inputs is not None and vitals.loader is not None and len(vitals.setup.optimizers) == 1
    if not share or not forward or step_s is None or not vitals.backward_share or not own:
        return None
    if vitals.on_gpu:  # the host is soon done with it, the GPU is not
        if vitals.gpu_forward_share is None:
            return None
        share = vitals.gpu_forward_share * min(share / forward, 1.0)
    if share < RESIDUAL_SHARE:
        return None
    lines = [one for one in vitals.lines_in("forward") if one.no_grad]
    return Finding(
        rule=AGAIN.name,
        headline=f"The model runs a second time in each step, without gradients (at most {formatting.share(share)} to "
        "gain, if training does not need it).",
        cost_share=share,
        kind="at-most",
        evidence=(
            f"{formatting.seconds(share * step_s)} of each step of {formatting.seconds(step_s)}",
            *dearest_lines(lines, vitals.source),
        ),
        prescriptions=(FROM_TRAINING, SELDOM),
    )


def _fed(vitals: Vitals) -> bool:
    """Whether a loader of its own delivers what is evaluated."""
    return any(one.role == "evaluation" for one in vitals.setup.loaders)


def _less_often(vitals: Vitals, text: str, what: str) -> Prescription:
    """A condition in the loop's own terms: a loop that runs over its data once has no second epoch to wait for."""
    each_step = (vitals.evaluated_steps_share or 0.0) >= EACH_STEP
    when = "epoch % 2 == 0" if not each_step and (vitals.epochs or 1) > 1 else "step % 500 == 0"
    return Prescription(text, Safety.BY_HAND, code=f"if {when}:\n    evaluate({what})")

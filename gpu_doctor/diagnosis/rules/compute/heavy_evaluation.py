"""Evaluation passes take a large part of the run.

What it means
    Between training steps the loop runs the model over validation data; those passes are billed here, their batches
    too. One that calls parts of the model (`model.encoder(x)`) is told by `model.eval()`, no gradients from there on,
    and `model.train()`. Passes of the trained model without gradients that no loader fed may also be rollouts
    (reinforcement learning) or generation, which make the data that is trained on: how the model is called is the same.

Why it costs you
    Nothing is learned meanwhile.

What to try
    Evaluate less often, on a fixed part of the data, with a larger batch, with workers of its own, and under
    `torch.inference_mode()`. The accuracy of the batch that is trained on needs no second forward: training has made
    its outputs. Rollouts: step several environments at once, so that one forward serves all of them.

When to leave it
    When each evaluation decides something (early stopping, model selection) and the run is short anyway; and rollouts
    as such: half of them is half of the data.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import Gain, at_best
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety, faster
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("evaluation_share",)

EVALUATION_SHARE = 0.20
"""The bar of the catalogue."""
EACH_STEP = 0.5
"""Of the steps: so often no validation data is gone through, but the batch at hand."""
FROM_TRAINING = Prescription(
    text="If it runs on the training batch (for its accuracy): use the outputs that training has computed already",
    safety=Safety.BY_HAND,
    code="outputs = model(inputs)  # as trained on\n"
    "hits += (outputs.detach().argmax(1) == targets).sum()  # no second forward",
    changes="The accuracy is then that of the outputs before the update, in training mode (dropout, batch statistics).",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where evaluation takes at least a fifth of the wall-clock."""
    share = vitals.evaluation_share
    if share is None or share < EVALUATION_SHARE:
        return None
    if not any(one.role == "evaluation" for one in vitals.setup.loaders):
        return _passes(vitals, share)
    return Finding(
        rule="heavy-evaluation",
        headline=f"Evaluation takes {formatting.share(share)} of the time.",
        cost_share=share,
        evidence=hot_lines(vitals, ("evaluation",)),
        prescriptions=(
            Prescription(
                text="Evaluate half as often, or on a part of the data",
                safety=Safety.BY_HAND,
                code=f"if {_seldom(vitals)}:\n    evaluate(model, val_loader)",
            ).expecting(Gain(faster(share / 2.0), 1.0, at_best(share))),
        ),
    )


def _each_step(vitals: Vitals) -> bool:
    return (vitals.evaluated_steps_share or 0.0) >= EACH_STEP


def _seldom(vitals: Vitals) -> str:
    """A condition for it in the loop's own terms: one that runs over its data once has no second epoch to wait for."""
    return "epoch % 2 == 0" if not _each_step(vitals) and (vitals.epochs or 1) > 1 else "step % 500 == 0"


def _passes(vitals: Vitals, share: float) -> Finding:
    """No evaluation loader delivered the batches: an evaluation, a rollout and a generation look alike."""
    often = _each_step(vitals)
    return Finding(
        rule="heavy-evaluation",
        headline=f"Passes without gradients take {formatting.share(share)} of the time (evaluation, or rollouts that "
        "collect training data).",
        cost_share=share,
        evidence=("their batches did not come from a DataLoader", *hot_lines(vitals, ("evaluation",))),
        prescriptions=(
            *((FROM_TRAINING,) if often and vitals.loader is not None else ()),
            Prescription(
                text="If it is evaluation: do it less often, or on a part of the data",
                safety=Safety.BY_HAND,
                code=f"if {_seldom(vitals)}:\n    evaluate(model)",
            ),
            Prescription(
                text="If it collects training data: let one forward pass serve several environments or prompts",
                safety=Safety.BY_HAND,
                code="actions = policy(torch.stack(observations))  # of all environments at once",
            ),
        ),
    )

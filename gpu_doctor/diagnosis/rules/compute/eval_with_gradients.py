"""Evaluation records gradients that nobody ever asks for.

What it means
    The model is called in evaluation mode while gradients are enabled. `model.eval()` turns dropout and batch norm, it
    does not turn the recording off.

Why it costs you
    Every operation writes down how to go backwards and keeps its inputs alive until the output is dropped, so that new
    memory is touched instead of old memory reused; transformer encoder layers do not take their fused path. Measured on
    a CPU: evaluation takes 1.1 to 1.7 times as long. Peak memory is that of training. GPU: not yet run on one.

What to try
    `with torch.inference_mode():` around the evaluation, or `torch.no_grad()` where its outputs are trained on later.

When to leave it
    When the gradients are wanted (forces, saliency, attacks): those are not counted here.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import passes
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "evaluation_facts")

FEWEST = 3
"""Forwards that must have been seen to record in vain: the first batch of a run may be a try."""
GAINS = (1.0, 1.2, 1.7)
"""Low, usual, high: evaluation with gradients over evaluation without. Never faster; the rest is of one machine's CPU
(torch 2.13, 1 thread: 1.13x to 1.41x for linear and recurrent layers, 1.1x to 1.4x for convolutions), and where
another one's allocator is quicker the price is too high by some hundredths of what evaluation takes."""
FUSED_GAINS = (1.1, 1.4, 2.0)
"""As above, for transformer encoder layers, whose fused path torch takes only without gradients (1.68x there)."""
ATTENTION = "NonDynamicallyQuantizableLinear"
"""The output layer of nn.MultiheadAttention, as layers are counted."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where evaluation forwards recorded gradients that no backward used, and the recording takes time."""
    facts = vitals.evaluation_facts
    if facts is None or facts.with_gradients < FEWEST or vitals.forward_share is None:
        return None
    if vitals.device_limits:
        return None
    low, usual, high = FUSED_GAINS if vitals.setup.layers.get(ATTENTION) else GAINS
    trains = bool(vitals.setup.optimizers)
    spent = max(vitals.evaluation_share or 0.0, _forwards_alone(vitals)) if trains else vitals.forward_share
    spent *= facts.with_gradients / facts.forwards
    least, cost, most = (spent * (1.0 - 1.0 / gain) for gain in (low, usual, high))
    what = "Evaluation" if trains else "The model"
    return Finding(
        rule="eval-with-gradients",
        headline=f"{what} records gradients that nobody uses: about {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"{facts.with_gradients} of {facts.forwards} inspected forward passes in evaluation mode recorded "
            "gradients that no backward pass used",
            f"they take {formatting.share(spent)} of the time, estimated as {formatting.average(usual)} times as long "
            "as without gradients",
            *hot_lines(vitals, ("evaluation",) if trains else ("forward",)),
        ),
        prescriptions=(
            Prescription(
                text="Evaluate without recording gradients",
                safety=Safety.BY_HAND,
                code="with torch.inference_mode():\n    for inputs, targets in val_loader:\n"
                "        outputs = model(inputs)",
            ).saving(least, cost, most),
        ),
    )


def _forwards_alone(vitals: Vitals) -> float:
    """Share of the wall-clock in forwards that no backward followed, where a pass is not told by no_grad().

    What lies beyond the forward that goes with such a backward usually is not training's; fused layers gain more, and
    so are held to the least. Anomaly detection makes forwards long by itself.
    """
    if not vitals.backward_share or vitals.setup.flags.get("anomaly_mode"):
        return 0.0
    ratio = passes.BACKWARD_LEAST if vitals.setup.layers.get(ATTENTION) else passes.BACKWARD_USUAL
    return max(vitals.together("forward", "loss") - vitals.backward_share / ratio, 0.0)

"""The model's forward does work that its output does not depend on: statistics, prints, checks, kept activations.

What it means
    Statements of a `forward`, and of forward hooks that return nothing, are told apart by their text: those on which
    nothing that is returned depends, and which keep nothing that is read in any text that the run has passed through.
    Looks at the running loop tell how long they take. GPU: not yet run on one.

Why it costs you
    They run in every step, and often fetch values from the device or turn tensors into Python numbers one by one. In
    the anatomy of a step they look like computing.

What to try
    Take them out, or do them every n steps (`if self.training and self.step % 100 == 0`), on the device and for the
    whole tensor at once. Checks for NaN: `torch.autograd.detect_anomaly()` for a few steps when something is wrong.

When to leave it
    While you are debugging the model, and the steps are few.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.removed_work import without
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.evidence import dearest_lines
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("forward_share", "step_wall_s")

PYTHON_SHARE = 0.10
"""As for Python in the loop: TraceML 0.5 warns of a residual from 10 % on."""
SELDOM = (
    "Take it out of the forward, or do it every n steps; remove a hook when it has done its work",
    "if self.step % 100 == 0:  # in the forward\n    ...\nhandle.remove()  # what register_forward_hook returned",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where such statements take a tenth of the wall-clock."""
    step_s, share = vitals.host_step_s, gpu_idle.forward_aside(vitals)
    if step_s is None:
        return None
    if vitals.on_gpu:  # it stalls the GPU inside of the step, where its queue is empty
        if not vitals.gpu_outruns_host:
            return None
        share = min(share, vitals.gpu_forward_share or 0.0)
    if share < PYTHON_SHARE:
        return None
    gain = without(vitals, share)
    return Finding(
        rule="python-in-forward",
        headline=f"The model's forward does work that its output does not need: {formatting.share(share)} of the time.",
        cost_share=share,
        evidence=(
            f"{formatting.seconds(share * step_s)} of every step of {formatting.seconds(step_s)}",
            *dearest_lines((one for one in vitals.lines if gpu_idle.aside(one)), vitals.source),
        ),
        prescriptions=(
            Prescription(
                text=SELDOM[0],
                safety=Safety.BY_HAND,
                code=SELDOM[1],
                predicted_speedup=gain.speedup,
                predicted_low=gain.low,
                predicted_high=gain.high,
                at_most=True,
            ),
        ),
    )

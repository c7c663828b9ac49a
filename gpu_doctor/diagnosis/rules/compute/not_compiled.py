"""The GPU waits for the launches of many small kernels, and the model is not compiled.

What it means
    Every operation of the model is launched on its own, by Python. The GPU is done with each before the next one
    comes. `torch.compile` joins neighbouring operations into one kernel and launches them without Python.

Why it costs you
    The GPU idles between the kernels, and each of them reads and writes memory again. The price is the most that it can
    be: all of the host's time in the phases that launch.

What to try
    `torch.compile(model)`, then a larger batch. The first steps compile, for seconds to minutes; a trial leaves them
    out and says so. What it gains depends on the model: measure it. GPU: not yet run on one.

When to leave it
    When the run is shorter than the compilation, or input shapes change all the time.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.evidence import sizes
from gpu_doctor.diagnosis.rules.host import launch_bound
from gpu_doctor.diagnosis.rules.prescriptions import larger_batch
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import TENSOR_CORES

NEEDS = (*launch_bound.NEEDS, "model", "inputs")

EXCLUDES = ("launch-bound",)
"""The same symptom: compiling keeps the training as it is, so it comes first, and the larger batch second."""

FEW_SHAPES = 2
"""A full and a last batch; more shapes make torch.compile compile again."""
LOOKED_AT = 5
"""Forwards from which on shapes are known not to change."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU that waits for launches of a model with static shapes that is not compiled."""
    cost, wait, model, inputs = gpu_idle.launching(vitals), vitals.exposed_wait_share, vitals.model, vitals.inputs
    if cost is None or wait is None or model is None or inputs is None or wait >= launch_bound.WAIT_SHARE:
        return None
    if not vitals.gpu_outruns_host or vitals.compiled or inputs.looked_at < LOOKED_AT or inputs.shapes > FEW_SHAPES:
        return None
    if vitals.capability is not None and not vitals.at_least(TENSOR_CORES):
        return None
    bigger = larger_batch(vitals)  # as launch-bound prescribes
    shape = sizes(inputs.shape)
    return Finding(
        rule="not-compiled",
        headline=f"Operations are launched one by one: that takes up to {formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            gpu_idle.emptied(vitals),
            f"the model is not compiled, and its input is always {shape}"
            if inputs.shapes == 1
            else f"the model is not compiled, and its input is {shape} except for a last batch",
        ),
        prescriptions=(
            Prescription(
                text="Compile the model",
                safety=Safety.SAFE,
                settings={"compile": True},
                code="model = torch.compile(model)",
            ),
            *([bigger] if bigger is not None else []),
        ),
    )

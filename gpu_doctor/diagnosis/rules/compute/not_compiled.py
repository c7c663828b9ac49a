"""The GPU waits for the launches of many small kernels, and the model is not compiled.

What it means
    Every operation of the model is launched on its own, by Python. The GPU is done with each before the next one
    comes. `torch.compile` joins neighbouring operations into one kernel and launches them without Python.

Why it costs you
    The GPU idles between the kernels, and each of them reads and writes memory again.

What to try
    `torch.compile(model)`, then a larger batch. The first steps compile, for seconds to minutes; a trial leaves them
    out and says so. What it gains depends on the model: measure it. GPU: not yet run on one.

When to leave it
    When the run is shorter than the compilation, or input shapes change all the time.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.prescriptions import larger_batch
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("queue_empty_share", "gpu_util_pct", "exposed_wait_share", "sync_share", "model", "inputs")

EXCLUDES = ("launch-bound",)
"""The same symptom: compiling keeps the training as it is, so it comes first, and the larger batch second."""

FEW_SHAPES = 2
"""A full and a last batch; more shapes make torch.compile compile again."""
LOOKED_AT = 5
"""Forwards from which on shapes are known not to change."""
CAPABILITY = (7, 0)
"""Triton, which torch.compile writes its kernels in, supports GPUs from compute capability 7.0 on."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a GPU that waits for launches of a model with static shapes that is not compiled."""
    empty, util = vitals.queue_empty_share, vitals.gpu_util_pct
    wait, sync = vitals.exposed_wait_share, vitals.sync_share
    model, inputs = vitals.model, vitals.inputs
    if empty is None or util is None or wait is None or sync is None or model is None or inputs is None:
        return None
    if not vitals.launches_limit or vitals.compiled or inputs.looked_at < LOOKED_AT or inputs.shapes > FEW_SHAPES:
        return None
    if (vitals.capability or CAPABILITY) < CAPABILITY:
        return None
    taken = wait + (vitals.exposed_transfer_share or 0.0) + gpu_idle.idle_elsewhere(vitals)  # as in launch-bound
    cost = max(1.0 - util / 100.0 - taken, 0.0)
    bigger = larger_batch(vitals)  # as launch-bound prescribes
    shape = " x ".join(str(length) for length in inputs.shape)
    return Finding(
        rule="not-compiled",
        headline=f"Operations are launched one by one: about {formatting.share(cost)} of the time the GPU waits for "
        "the next.",
        cost_share=cost,
        evidence=(
            f"the queue is empty at the end of {formatting.share(empty)} of steps; NVML utilisation "
            f"{formatting.percent(util)}",
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

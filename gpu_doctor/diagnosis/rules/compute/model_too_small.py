"""The model is too small for the GPU: even large batches leave it idle, and that is fine.

What it means
    The batch is large already, and still the arithmetic of a whole step is so little that a CPU would do it in the time
    that the step takes now. The GPU waits for launches because there is nothing else to wait for.

Why it costs you
    It costs little: the GPU's utilisation looks low, and there is no work that could fill it.

What to try
    Leave it, or train on the CPU and leave the GPU to others. What still shortens the step is fewer launches (CUDA
    graphs, torch.compile) or several models trained side by side.

When to leave it
    When the run is short anyway, or the model is about to grow.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules import gpu_idle
from gpu_doctor.diagnosis.rules.host import launch_bound
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.arithmetic import CORE_FLOPS, flops_at_most
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = (*launch_bound.NEEDS, "inputs", "parameters")
EXCLUDES = ("launch-bound", "not-compiled", "small-batch", "full-precision", "tf32-off")

LARGE_BATCH = 1024
"""From here on a batch counts as large: small-batch's cure has been taken already."""

FEWER_LAUNCHES = Prescription(
    text="To shorten the step anyway, launch fewer kernels: compile the model",
    safety=Safety.SAFE,
    settings={"compile": True},
    code="model.compile()  # the first steps take seconds to minutes",
)


def check(vitals: Vitals) -> Finding | None:
    """Fires where a launch-bound loop has a large batch and next to no arithmetic."""
    setup, inputs, wall = vitals.setup, vitals.inputs, vitals.step_wall_s
    bound, share = launch_bound.check(vitals), gpu_idle.launching(vitals)
    if bound is None or share is None or inputs is None or not inputs.shape or not setup.parameters or not wall:
        return None
    batch, loader = inputs.shape[0], vitals.loader
    whole = loader is not None and loader.dataset_len is not None and batch >= loader.dataset_len > 1
    if batch < LARGE_BATCH and not whole:
        return None
    flops = flops_at_most(setup) or 0.0
    cpu_s = flops * vitals.rounds / (CORE_FLOPS * max(vitals.usable_cores, 1.0))
    if cpu_s > wall:
        return None
    compiled = vitals.compiled
    return Finding(
        rule="model-too-small",
        headline=f"The model is too small to fill this GPU: launching takes up to "
        f"{formatting.share(share)} of the time.",
        cost_share=share,
        evidence=(
            *bound.evidence,
            f"{'the whole dataset' if whole else formatting.count(batch, 'sample')} in a batch and "
            f"{formatting.grouped(setup.parameters)} weights: at most {formatting.number(flops / 1e6)} million "
            "operations a step",
            f"a step takes {formatting.seconds(wall)}; {formatting.cores(vitals.usable_cores)} of the CPU would need "
            f"about {formatting.seconds(cpu_s)} for them",
        ),
        prescriptions=(
            Prescription(
                text="Leave it: low utilisation is fine here; or use the CPU, which should be as fast",
                safety=Safety.BY_HAND,
                code='device = "cpu"  # model.to(device) and batches as they come',
            ),
            *((FEWER_LAUNCHES,) if setup.model is not None and not compiled else ()),
        ),
    )

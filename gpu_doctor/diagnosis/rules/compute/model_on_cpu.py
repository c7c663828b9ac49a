"""The model trains on the CPU although torch can reach a GPU.

What it means
    A CUDA device is there, but the trained parameters, and with them all computing, are on the CPU.

Why it costs you
    A GPU does the matrix products of a model of any size many times as fast, and stands idle.

What to try
    `model.to("cuda")` before the optimizer is made, and each batch `.to("cuda", non_blocking=True)`. How much that
    gains cannot be known from a run on the CPU: measure it. GPU: not yet run on one.

When to leave it
    When the model is tiny: below some milliseconds a step the launches of a GPU take as long as the CPU's computing.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import taking
from gpu_doctor.diagnosis.rules.hardware import cpu_only_torch
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("step_wall_s", "forward_share", "backward_share", "model")


def check(vitals: Vitals) -> Finding | None:
    """Fires where a CUDA device was found, the trained parameters are all on the CPU, and steps compute for a while."""
    setup, wall = vitals.setup, vitals.step_wall_s
    model = vitals.model
    if not setup.devices or vitals.on_gpu or wall is None or setup.device != "cpu":
        return None
    if model is None or not model.device_bytes or set(model.device_bytes) != {"cpu"}:
        return None
    share = vitals.computing_share
    if cpu_only_torch.computing_share(vitals) is None:
        return None
    fed = f", its inputs on {setup.inputs.device}" if setup.inputs is not None and setup.inputs.device else ""
    before = "" if vitals.predicts else " before its optimizer is created"
    return Finding(
        rule="model-on-cpu",
        headline=f"The model is on the CPU, where it computes {formatting.share(share)} of the time; "
        f"{formatting.article(setup.devices[0].name)} is idle.",
        cost_share=share,
        evidence=(
            f"{formatting.size(model.device_bytes['cpu'])} of parameters, all on the CPU{fed}",
            f"{taking(vitals)} {formatting.seconds(share * wall)} a step; all of it is counted, as the GPU's time is "
            "not known",
        ),
        prescriptions=(
            Prescription(
                text=f"Move the model to the GPU{before}, and every batch too",
                safety=Safety.BY_HAND,
                code='model = model.to("cuda")\ninputs = inputs.to("cuda", non_blocking=True)',
            ),
        ),
    )

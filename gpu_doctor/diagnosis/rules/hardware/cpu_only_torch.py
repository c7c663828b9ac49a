"""Training runs on the CPU because this torch was built without CUDA, beside an NVIDIA GPU.

What it means
    NVIDIA's driver answers and gives this process a GPU, but the installed torch has no code for it.

Why it costs you
    All computing is done by the CPU. How much faster the GPU would be depends on the model; the cost is the part of the
    time in which the model computes, which is what would move.

What to try
    Install a CUDA build of torch for the driver that is there, and move model and batches to the GPU.

When to leave it
    When the model is so small that launching it on a GPU would take as long, or the GPU is kept for others.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import joined, phases
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("cards_seen", "step_wall_s")

SMALL_STEP_S = 5e-3
"""Computing of a step below which a GPU may be no faster: some hundred launches of 5 to 10 us each (forward, backward
and optimizer of a dozen layers; launch cost as in NVIDIA's CUDA guides) are 1 to 5 ms."""
_WHEELS = {11: "cu118", 12: "cu126", 13: "cu130"}
"""Major version of CUDA that a driver serves -> torch's wheels that run on it (minor version compatibility)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on a CPU loop whose torch has neither CUDA nor ROCm while NVML answers for a card."""
    setup, cost = vitals.setup, computing_share(vitals)
    if not vitals.cards_seen or setup.device != "cpu" or not setup.torch_version or setup.cuda_version or cost is None:
        return None
    if "rocm" in setup.torch_version or "xpu" in setup.torch_version:
        return None
    serves = vitals.driver_cuda
    build = f"for CUDA {serves[0]}.{serves[1]} or lower" if serves else "for the driver's CUDA"
    wheels = _WHEELS.get(serves[0] if serves else 0, "cu126")
    return Finding(
        rule="cpu-only-torch",
        headline=f"torch {setup.torch_version} has no CUDA: the model computes on the CPU beside an NVIDIA GPU.",
        cost_share=cost,
        evidence=(
            f"{formatting.share(cost)} of the time is {joined(phases(vitals))} on the CPU, "
            f"{formatting.seconds(cost * (vitals.step_wall_s or 0.0))} a step",
            f"GPUs that this process could use: {vitals.cards_seen}",
        ),
        prescriptions=(
            Prescription(
                f"Install a torch {build}, then restart the kernel",
                Safety.BY_HAND,
                code="# pytorch.org/get-started/locally has the line of today\n"
                f"%pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{wheels}",
            ),
        ),
    )


def computing_share(vitals: Vitals) -> float | None:
    """Part of the time in which the model computes; None where that is so little that a GPU would not be faster."""
    share = vitals.together("forward", "loss", "backward", "optimizer", "evaluation")
    return share if share * (vitals.step_wall_s or 0.0) >= SMALL_STEP_S else None

"""Training runs on the CPU because the NVIDIA driver is too old for the CUDA that torch was built with.

What it means
    The driver answers and gives this process a GPU, but serves an earlier CUDA than torch was built for, and torch
    therefore found no device.

Why it costs you
    All computing is done by the CPU; the cost is the part of the time in which the model computes, which would move.

What to try
    Update the driver, or install a torch that was built for a CUDA that the driver serves.

When to leave it
    When the model is so small that launching it on a GPU would take as long.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import joined, phases
from gpu_doctor.diagnosis.rules.hardware.cpu_only_torch import computing_share
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import too_old, version

NEEDS = ("cards_seen", "driver_cuda", "step_wall_s")


def check(vitals: Vitals) -> Finding | None:
    """Fires on a CPU loop whose torch sees no device while the driver serves an earlier major version of CUDA."""
    setup, serves, cost = vitals.setup, vitals.driver_cuda, computing_share(vitals)
    if not vitals.cards_seen or serves is None or setup.device != "cpu" or setup.devices or cost is None:
        return None
    if not setup.cuda_version or not too_old(serves, version(setup.cuda_version)):
        return None
    driver = setup.driver_version or "of unknown version"
    return Finding(
        rule="driver-too-old",
        headline=f"The NVIDIA driver is too old for torch's CUDA {setup.cuda_version}: the model computes on the CPU.",
        cost_share=cost,
        evidence=(
            f"driver {driver} serves CUDA {serves[0]}.{serves[1]}; torch {setup.torch_version}",
            f"{formatting.share(cost)} of the time is {joined(phases(vitals))} on the CPU",
        ),
        prescriptions=(
            Prescription("Update the NVIDIA driver (nvidia.com/drivers), then restart", Safety.BY_HAND),
            Prescription(
                f"Or install a torch built for CUDA {serves[0]} (pytorch.org/get-started/locally)", Safety.BY_HAND
            ),
        ),
    )

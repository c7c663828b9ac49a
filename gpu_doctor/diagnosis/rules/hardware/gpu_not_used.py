"""Rule for a loop that computes on the CPU although there is a GPU, or for a GPU that this torch cannot compute on.

Its finding comes first: no other cure is worth its time before. The gain of the GPU was not measured, so the price is a
bound: the time in which the CPU computes.
"""

from __future__ import annotations

from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.evidence import phases_take
from gpu_doctor.diagnosis.rules.rule import Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import ABSENT, too_old, version

CAUSES: Final = (
    Cause(
        "model-on-cpu",
        """
        The model trains on the CPU although torch can use a GPU.

        What it means
            torch sees a CUDA device, but the model's parameters are on the CPU, and so is all computing.

        Why it costs you
            The GPU stands idle while the CPU computes. The cost is a bound, all the time in which the CPU computes: how
            long the GPU would take was not measured.

        What to try
            Move the model to the GPU before you create the optimizer, and move every batch. A run on the CPU cannot
            show how much that gains: try it. This rule has not run on a real GPU yet.

        In code
            # sick
            model = Net()
            loss = criterion(model(inputs), targets)
            # cured
            model = Net().to("cuda")  # before the optimizer is created
            inputs, targets = inputs.to("cuda"), targets.to("cuda")
            loss = criterion(model(inputs), targets)

        When to leave it
            Leave it if the model is tiny: below some milliseconds a step, launching kernels on a GPU takes as long as
            computing on the CPU.
        """,
        ("step_wall_s", "forward_share", "backward_share", "model"),
    ),
    Cause(
        "cpu-only-torch",
        """
        The model computes on the CPU because this torch was built without CUDA, although there is an NVIDIA GPU.

        What it means
            NVIDIA's driver works and gives this process a GPU, but the installed torch contains no CUDA code.

        Why it costs you
            The CPU does all the computing. The cost is a bound, all the time in which the CPU computes: how long the
            GPU would take was not measured.

        What to try
            Install a torch that was built for CUDA and that your driver supports, restart the kernel, and move model
            and batches to the GPU.

        In code
            $ python -c "import torch; print(torch.version.cuda)"  # None: built without CUDA
            $ pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126

        When to leave it
            Leave it if the model is so small that launching it on a GPU would take as long, or if the GPU is reserved
            for others.
        """,
        ("cards_seen", "step_wall_s"),
    ),
    Cause(
        "driver-too-old",
        """
        The model computes on the CPU because the NVIDIA driver is too old for torch's CUDA version.

        What it means
            The driver works and gives this process a GPU, but it supports only an earlier CUDA version than torch was
            built for. torch therefore finds no device.

        Why it costs you
            The CPU does all the computing. The cost is a bound, all the time in which the CPU computes: how long the
            GPU would take was not measured.

        What to try
            Update the driver, or install a torch that was built for a CUDA version that the driver supports.

        In code
            $ nvidia-smi | grep "CUDA Version"  # the newest version that the driver supports
            $ python -c "import torch; print(torch.version.cuda)"  # the version torch was built for

        When to leave it
            Leave it if the model is so small that launching it on a GPU would take as long.
        """,
        ("cards_seen", "driver_cuda", "step_wall_s"),
    ),
    Cause(
        "unsupported-architecture",
        """
        This torch has no machine code for the GPU's architecture, so kernels cannot run on it.

        What it means
            Each build of torch contains machine code for some GPU architectures. Code for another major version does
            not run, and without PTX, the portable form, the driver cannot translate it either. The error is "no kernel
            image is available for execution on the device".

        Why it costs you
            The loop fails, or it has to stay on the CPU.

        What to try
            Install a build that supports the card: a newer one for a new card, an older one for a card that was
            dropped. `torch.cuda.get_arch_list()` lists the architectures of this build.

        In code
            $ nvidia-smi --query-gpu=name,compute_cap --format=csv
            $ python -c "import torch; print(torch.cuda.get_arch_list())"

        When to leave it
            Do not leave it if you want to use the GPU.
        """,
        ("outcome",),
    ),
)

SMALL_STEP_S: Final = 5e-3
"""Seconds of computing in a step below which a GPU may be no faster: some hundred launches of 5 to 10 us each (forward,
backward and optimizer of a dozen layers) are 1 to 5 ms."""
WHEELS: Final = {11: "cu118", 12: "cu126", 13: "cu130"}
"""Major version of CUDA that a driver supports -> torch's wheels that run on it (minor version compatibility)."""
ERRORS: Final = ("no kernel image is available", "not compatible with the current pytorch installation")
"""Parts of CUDA's and torch's messages on an unsupported card (cudaErrorNoKernelImageForDevice, torch.cuda's
warning)."""


def check(vitals: Vitals) -> Finding | None:
    """Reports why the GPU is not used; at most one of the causes holds."""
    return _unsupported(vitals) or _cpu_only(vitals) or _old_driver(vitals) or _on_cpu(vitals)


def _computing_share(vitals: Vitals) -> float | None:
    """Share of the time in which the CPU computes; None if the loop uses a GPU, or if a GPU would hardly be faster."""
    share, step_s = vitals.together("forward", "loss", "backward", "optimizer", "evaluation"), vitals.step_wall_s
    if vitals.on_gpu or vitals.setup.device != "cpu" or step_s is None or share * step_s < SMALL_STEP_S:
        return None
    return share


def _finding(
    vitals: Vitals, rule: str, share: float, headline: str, evidence: tuple[str, ...], *cures: Prescription
) -> Finding:
    """Builds the finding of a cause, whose bound `share` is the time in which the CPU computes."""
    spent = f"{phases_take(vitals)} {formatting.seconds(share * (vitals.step_wall_s or 0.0))} a step on the CPU"
    return Finding(
        rule=rule,
        kind="at-most",
        first=True,
        headline=f"{headline} (at most {formatting.share(share)} of the time to gain).",
        cost_share=share,
        evidence=(*evidence, f"{spent}; how long the GPU would take is not known"),
        prescriptions=cures,
    )


def _on_cpu(vitals: Vitals) -> Finding | None:
    """Reports a model on the CPU although torch sees a GPU (model-on-cpu)."""
    setup, model, share = vitals.setup, vitals.model, _computing_share(vitals)
    if not setup.devices or share is None or model is None or set(model.device_bytes) != {"cpu"}:
        return None
    fed = f", its inputs on {setup.inputs.device}" if setup.inputs is not None and setup.inputs.device else ""
    before = "" if vitals.predicts else " before its optimizer is created"
    return _finding(
        vitals,
        "model-on-cpu",
        share,
        f"The model is on the CPU, and {formatting.article(setup.devices[0].name)} is idle",
        (f"{formatting.size(model.device_bytes['cpu'])} of parameters, all on the CPU{fed}",),
        Prescription(
            f"Move the model to the GPU{before}, and every batch too",
            Safety.BY_HAND,
            code='model = model.to("cuda")\ninputs = inputs.to("cuda", non_blocking=True)',
        ),
    )


def _cpu_only(vitals: Vitals) -> Finding | None:
    """Reports a torch without CUDA on a machine with an NVIDIA GPU (cpu-only-torch)."""
    setup, share, serves = vitals.setup, _computing_share(vitals), vitals.driver_cuda
    if not vitals.cards_seen or share is None or not setup.torch_version or setup.cuda_version:
        return None
    if "rocm" in setup.torch_version or "xpu" in setup.torch_version:
        return None
    build = f"for CUDA {serves[0]}.{serves[1]} or lower" if serves else "for the driver's CUDA"
    wheels = WHEELS.get(serves[0] if serves else 0, "cu126")
    return _finding(
        vitals,
        "cpu-only-torch",
        share,
        f"torch {setup.torch_version} has no CUDA: the model computes on the CPU although there is an NVIDIA GPU",
        (f"GPUs that this process could use: {vitals.cards_seen}",),
        Prescription(
            f"Install a torch {build}, then restart the kernel",
            Safety.BY_HAND,
            code="# pytorch.org/get-started/locally has the current command\n"
            f"%pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{wheels}",
        ),
    )


def _old_driver(vitals: Vitals) -> Finding | None:
    """Reports a driver that is too old for torch's CUDA version (driver-too-old)."""
    setup, share, serves = vitals.setup, _computing_share(vitals), vitals.driver_cuda
    if not vitals.cards_seen or serves is None or setup.devices or share is None:
        return None
    if not setup.cuda_version or not too_old(serves, version(setup.cuda_version)):
        return None
    driver = setup.driver_version or "of unknown version"
    return _finding(
        vitals,
        "driver-too-old",
        share,
        f"The NVIDIA driver is too old for torch's CUDA {setup.cuda_version}: the model computes on the CPU",
        (f"driver {driver} supports CUDA {serves[0]}.{serves[1]}; torch {setup.torch_version}",),
        Prescription("Update the NVIDIA driver (nvidia.com/drivers), then restart", Safety.BY_HAND),
        Prescription(
            f"Or install a torch built for CUDA {serves[0]} (pytorch.org/get-started/locally)", Safety.BY_HAND
        ),
    )


def _unsupported(vitals: Vitals) -> Finding | None:
    """Reports a torch without machine code for the GPU, by its architectures or by the error that ended the run."""
    failed = any(words in vitals.reason.lower() for words in ERRORS)
    if vitals.architecture_support != ABSENT and not failed:
        return None
    setup = vitals.setup
    card = setup.card or next(iter(setup.devices), None)
    name = card.name if card is not None else "the GPU"
    arch = f" (sm_{card.capability[0]}{card.capability[1]})" if card is not None and card.capability else ""
    return Finding(
        rule="unsupported-architecture",
        kind="hint",
        first=True,
        headline=f"torch {setup.torch_version} has no code for {name}{arch}.".replace("  ", " "),
        cost_share=None,
        evidence=(f"the run ended with: {vitals.reason}",) if failed else (),
        prescriptions=(
            Prescription(
                f"Install a torch build that has the card's architecture{arch} (pytorch.org/get-started/locally)",
                Safety.BY_HAND,
                code="torch.cuda.get_arch_list()  # the architectures of this build",
            ),
        ),
        risk="Kernels cannot run on this GPU.",
    )

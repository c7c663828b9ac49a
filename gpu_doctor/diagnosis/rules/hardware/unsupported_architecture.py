"""This torch has no machine code for the GPU's architecture: kernels cannot run on it.

What it means
    A build of torch has machine code for some architectures. Code of another major version does not run, and without a
    portable form (PTX) it cannot be translated either: "no kernel image is available for execution on the device".

Why it costs you
    The loop fails, or stays on the CPU.

What to try
    Install a build that has the card's architecture: a newer one for a new card, an older one for a card that support
    was dropped for.

When to leave it
    Never, if the GPU is to be used.
"""

from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import ABSENT

NEEDS = ("outcome",)

SAYS = ("no kernel image is available", "not compatible with the current pytorch installation")
"""What CUDA and torch say of it (cudaErrorNoKernelImageForDevice, torch.cuda's warning)."""


def check(vitals: Vitals) -> Finding | None:
    """Fires on what torch's build says of the card in use, or on the error that ended the run."""
    said = any(words in vitals.reason.lower() for words in SAYS)
    if vitals.architecture_support != ABSENT and not said:
        return None
    setup = vitals.setup
    card = setup.card or next(iter(setup.devices), None)
    name = card.name if card is not None else "the GPU"
    arch = f" (sm_{card.capability[0]}{card.capability[1]})" if card is not None and card.capability else ""
    return Finding(
        rule="unsupported-architecture",
        headline=f"torch {setup.torch_version} has no code for {name}{arch}.".replace("  ", " "),
        cost_share=None,
        kind="hint",
        evidence=(f"the run ended with: {vitals.reason}",) if said else (),
        prescriptions=(
            Prescription(
                f"Install a torch build that has the card's architecture{arch} (pytorch.org/get-started/locally)",
                Safety.BY_HAND,
                code="torch.cuda.get_arch_list()  # what this build has",
            ),
        ),
        risk="Kernels cannot run on this GPU.",
    )

"""Copies to the GPU are exposed, and its PCIe link has fewer lanes or a lower generation than card and slot allow.

What it means
    The highest link seen while the GPU worked is narrower or slower than card and slot together could make it. A slot
    of an older generation than the card's is no fault of the link: nothing but another machine changes it.

Why it costs you
    Copies take longer by the ratio of the bandwidths. Only the part of them that the GPU waits for is counted.

What to try
    A better riser, another slot, the BIOS's setting of the slot; on a rented machine, another one. Meanwhile, fewer
    bytes: send uint8 and convert on the GPU, pin the memory, copy while the GPU computes.

When to leave it
    When copies are hidden behind the computing: the link is then fast enough.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.machine.cards import link_gb_per_s

NEEDS = ("pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max", "exposed_transfer_share")


def check(vitals: Vitals) -> Finding | None:
    """Fires where exposed copies go through a link that is less than what card and slot allow."""
    gen, width, exposed = vitals.pcie_gen, vitals.pcie_width, vitals.exposed_transfer_share
    if vitals.c2c_bytes_per_s is not None:
        return None  # copies take another link
    best_gen, best_width = vitals.pcie_gen_max, vitals.pcie_width_max
    if not gen or not width or not best_gen or not best_width or exposed is None:
        return None
    now, best = link_gb_per_s(gen, width), link_gb_per_s(best_gen, best_width)
    if now is None or best is None or now >= best:
        return None
    link = (
        f"PCIe gen {round(gen)} x{round(width)} ({formatting.bandwidth(1e9 * now)}), "
        f"while card and slot can do gen {round(best_gen)} x{round(best_width)}"
    )
    size = vitals.transfer_bytes_per_step
    return Finding(
        rule="slow-link",
        headline=f"The GPU's link is slow: {link} ({formatting.bandwidth(1e9 * best)}).",
        cost_share=exposed * (1.0 - now / best),
        evidence=(
            f"the GPU waits for copies {formatting.share(exposed)} of the time",
            *((f"{formatting.size(size)} are copied a step",) if size else ()),
        ),
        prescriptions=(
            Prescription(
                "Send fewer bytes: uint8 or indices, converted on the GPU",
                Safety.BY_HAND,
                code="x = x.to(device, non_blocking=True).float().div_(255)",
            ),
            Prescription(
                "Seat the card in a full-width slot; look for power saving (ASPM) and link speed in the BIOS",
                Safety.BY_HAND,
                code="!nvidia-smi -q -d PERFORMANCE | grep -i -A3 pcie",
            ),
        ),
    )

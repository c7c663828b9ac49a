"""Batches are copied to the GPU from pageable memory, and the GPU waits for the copies.

What it means
    The source of the copy is ordinary memory. The driver first copies it into a pinned buffer, and the host stands
    still until that is done; such a copy cannot overlap with anything.

Why it costs you
    Pinned memory is read by the GPU itself, about twice as fast, and with `non_blocking=True` while the host goes on.
    The price is what that saves, forecast from the bytes and from what the link gives. GPU: not yet run on one.

What to try
    `pin_memory=True` in the loader, `non_blocking=True` in `.to(device)`.

When to leave it
    When host memory is scarce: pinned pages cannot be swapped.
"""

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.forecast.prediction import Forecast
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.rule import Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals

NEEDS = ("pageable_share", "exposed_transfer_share", "loader")
EXCLUDES = ("heavy-transfer", "blocking-transfer")

EXPOSED_SHARE = 0.05
"""5 % of the wall-clock; TraceML 0.5 warns from 10 % on."""
MOSTLY = 0.5
"""At least half of the copies that were looked at start from pageable memory."""
PINNED_GAIN = 2.0
"""Pinned over pageable copies, where no forecast can tell: "more than twice as fast" (M. Harris, How to Optimize Data
Transfers in CUDA C/C++, NVIDIA technical blog), less with a fast CPU."""


def check(vitals: Vitals) -> Finding | None:
    """Fires where exposed copies start from pageable memory."""
    exposed, pageable = vitals.exposed_transfer_share, vitals.pageable_share
    if exposed is None or pageable is None or exposed < EXPOSED_SHARE or pageable < MOSTLY:
        return None
    pinned = forecast(vitals, {"pin_memory": True})
    saved = exposed * (1.0 - 1.0 / PINNED_GAIN) if pinned is None else 1.0 - 1.0 / max(pinned.speedup, 1.0)
    cost = gpu_pace.at_most(vitals, saved)  # next to none without workers: the loop then pins each batch itself
    return Finding(
        rule="pageable-transfer",
        headline=f"The GPU waits {formatting.share(exposed)} of the time for batches that are copied from pageable "
        f"memory; pinned memory would save about {formatting.share(cost)}.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(vitals.transfers_per_step)} copies and "
            f"{formatting.size(vitals.transfer_bytes_per_step)} a step, {formatting.share(pageable)} of the copies "
            "from pageable memory",
            *((f"with pinned memory: {pinned.why}",) if pinned is not None else ()),
        ),
        prescriptions=(_cure(vitals, pinned),),
    )


def _cure(vitals: Vitals, pinned: Forecast | None) -> Prescription:
    if vitals.loader is not None and vitals.loader.pin_memory:  # it pins the tensors that it knows
        return Prescription(
            text="The loader pins already, but not your own batch type: give it a pin_memory method",
            safety=Safety.BY_HAND,
            code="class Batch:  # a type of your own is pinned if it can do it itself\n"
            "    def pin_memory(self):\n"
            "        self.inputs = self.inputs.pin_memory()\n"
            "        return self",
        )
    return Prescription(
        text="Pin the loader's batches",
        safety=Safety.SAFE,
        settings={"pin_memory": True},
        code="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    ).expecting(pinned)

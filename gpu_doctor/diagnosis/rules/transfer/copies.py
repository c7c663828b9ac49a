"""Rule for a GPU that waits for copies from the host.

The price is the time in which the GPU's compute stream only copied, or idled behind a copy that the loop waited for. A
loop that copies its next batch on a stream of its own while the GPU computes spends no such time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.diagnosis.forecast.copies import without_copies
from gpu_doctor.diagnosis.forecast.forecast import forecast
from gpu_doctor.diagnosis.rules import gpu_pace
from gpu_doctor.diagnosis.rules.evidence import hot_lines
from gpu_doctor.diagnosis.rules.rule import NAMING_BAR, Cause, Finding, Prescription, Safety
from gpu_doctor.diagnosis.vitals.fields import Vitals
from gpu_doctor.diagnosis.vitals.idle import behind_copies_share, blocks_on_pinned
from gpu_doctor.machine.cards import link_gb_per_s

NEEDS: Final = ("gpu", "exposed_transfer_share", "transfer_bytes_per_step", "transfers_per_step", "step_wall_s")
CAUSES: Final = (
    Cause(
        "many-small-transfers",
        """
        Each step copies many small tensors to the GPU, and the calls take more time than the bytes.

        What it means
            A batch arrives in eight or more pieces of less than 64 kB on average (fields of a dictionary, masks,
            positions), or the loop creates constants on the host and copies them over.

        Why it costs you
            Each copy takes the host several microseconds, and a copy from pageable memory also makes it wait, however
            few bytes it moves. Pinning does not change that. The cost is the time of the copies in which the GPU had
            nothing else to do.

        What to try
            Pack the pieces into one tensor in `collate_fn` and split it on the GPU: a split is a view and costs
            nothing. Create constants on the GPU, once, before the loop.

        In code
            # sick
            ids, mask, labels = (batch[key].to(device) for key in ("ids", "mask", "labels"))
            positions = torch.arange(ids.shape[1]).to(device)
            # cured
            ids, mask, labels = batch["packed"].to(device).unbind()  # stacked in collate_fn
            positions = torch.arange(ids.shape[1], device=device)

        When to leave it
            Leave it if the GPU has other work queued during the copies.
        """,
        (*NEEDS, "traffic", "transfer_share", "caught_up_share"),
    ),
    Cause(
        "pageable-transfer",
        """
        Batches are copied to the GPU from pageable memory, and the GPU waits for the copies.

        What it means
            The batch is in ordinary (pageable) memory. The driver first copies it into a pinned buffer, and the host
            waits meanwhile. Such a copy does not overlap with computing.

        Why it costs you
            The GPU can read pinned memory by itself, and with `non_blocking=True` the host goes on. The cost is the
            time in which the GPU did nothing but copy. This rule has not run on a real GPU yet.

        What to try
            Set `pin_memory=True` in the loader and copy with `non_blocking=True`. Pinning takes time too: a loader with
            workers pins in a thread of its own, a loader without workers pins in the loop. If the GPU still waits for
            copies, make them on a stream of their own, one batch ahead.

        In code
            # sick
            loader = DataLoader(dataset, num_workers=4)
            batch = batch.to(device)
            # cured
            loader = DataLoader(dataset, num_workers=4, pin_memory=True)
            batch = batch.to(device, non_blocking=True)

        When to leave it
            Leave it if host memory is scarce: the system cannot swap pinned pages.
        """,
        (*NEEDS, "pageable_share", "loader"),
    ),
    Cause(
        "blocking-transfer",
        """
        Batches are in pinned memory, but the loop waits for each copy: `non_blocking=True` is missing.

        What it means
            `.to(device)` returns only when the copy is done, and the copy starts only when all work queued before it is
            done. Pinning makes the copy faster, but only `non_blocking=True` lets the host go on.

        Why it costs you
            While the host waits it cannot launch the next step. When the copy is done, the GPU's queue is empty, and
            the GPU idles until new launches arrive. The cost is the time of the copies and this idle time.

        What to try
            Pass `non_blocking=True` to `.to(device)`.

        In code
            # sick
            batch = batch.to(device)
            # cured
            batch = batch.to(device, non_blocking=True)

        When to leave it
            Leave it if the loop overwrites the pinned buffer right after the copy: the GPU would read the new values.
        """,
        (*NEEDS, "traffic", "transfer_share", "gpu_gap_share"),
    ),
    Cause(
        "slow-link",
        """
        The GPU waits for copies, and its PCIe link is narrower or slower than card and slot allow.

        What it means
            Even while the GPU works, the link has fewer lanes or a lower generation than card and slot support
            together. A slot of an older generation than the card is not reported: only another machine would change
            that.

        Why it costs you
            Copies take longer by the ratio of the two bandwidths. The cost is a bound: the part of the copies that the
            GPU waits for, times what the full link would save.

        What to try
            Use another riser or slot, or change the slot's setting in the BIOS. On a rented machine, ask for another
            one. Meanwhile send fewer bytes: send uint8 and convert on the GPU.

        In code
            $ nvidia-smi -q | grep -A 8 "GPU Link Info"  # generation and width: current and maximum

        When to leave it
            Leave it if the GPU computes while data is copied: the link is fast enough then.
        """,
        (*NEEDS, "pcie_gen", "pcie_width", "pcie_gen_max", "pcie_width_max"),
    ),
    Cause(
        "heavy-transfer",
        """
        The GPU waits while large batches are copied to it.

        What it means
            Data often travels in a wide form: images as float32 instead of uint8 (4 times the bytes), classes as
            one-hot vectors instead of indices, padding that nothing uses.

        Why it costs you
            The copy is in the same queue as the kernels, unless the loop copies on a stream of its own. While it runs,
            the GPU computes nothing. The cost is this time.

        What to try
            Send uint8 or indices and convert on the GPU. Crop and resize before the copy. Keep a small dataset on the
            GPU. Copy the next batch on a stream of its own while the GPU computes.

        In code
            # sick
            x = x.float().div_(255).to(device)
            # cured
            x = x.to(device).float().div_(255)  # x is uint8: a quarter of the bytes

        When to leave it
            Leave it if the copies are a small part of a step that waits for something else.
        """,
        (*NEEDS, "traffic"),
    ),
)

COPIES: Final = 8.0
"""Copies per batch that count as many (PyTorch's tuning guide: create tensors on the device)."""
SMALL_BYTES: Final = 64e3
"""Mean bytes below which copies are small; CUDA stages pageable copies below 64 kB through its command buffer."""
MOSTLY: Final = 0.5
"""Part of the copies, or of the bytes, that counts as most of them."""
OWN_TYPE: Final = Prescription(
    "The loader pins already, but not your own batch type: give it a pin_memory method",
    Safety.BY_HAND,
    code="class Batch:\n    def pin_memory(self):\n        self.inputs = self.inputs.pin_memory()\n        return self",
)
PACKED: Final = Prescription(
    "Pack what goes together into one copy, and create constants on the device",
    Safety.BY_HAND,
    code="packed = torch.cat([a, b, c], dim=1).to(device, non_blocking=True)\n"
    "a, b, c = packed.split(sizes, dim=1)\n"
    "positions = torch.arange(n, device=device)  # not torch.arange(n).to(device)",
)
NARROW: Final = Prescription(
    "Send the data narrow (uint8, indices) and convert it on the GPU",
    Safety.BY_HAND,
    code="x = x.to(device, non_blocking=True)  # uint8\nx = x.float().div_(255)  # on the GPU",
)
AHEAD: Final = Prescription(
    "Copy the next batch on a stream of its own while the GPU computes",
    Safety.BY_HAND,
    code="side = torch.cuda.Stream()  # once\n"
    "with torch.cuda.stream(side):  # after the step was launched\n"
    "    following = next(batches).to(device, non_blocking=True)  # from pinned memory\n"
    "torch.cuda.current_stream().wait_stream(side)  # before `following` is used",
)
SEATED: Final = Prescription(
    "Seat the card in a full-width slot; check link speed and power saving (ASPM) in the BIOS",
    Safety.BY_HAND,
    code='!nvidia-smi -q | grep -A 8 "GPU Link Info"',
)


def check(vitals: Vitals) -> list[Finding]:
    """Reports the cause of exposed copies, and apart from it the GPU's idle time behind copies that the loop awaits."""
    if any(getattr(vitals, name) is None for name in NEEDS) or not vitals.transfers_per_step:
        return []
    small = _many_small(vitals)
    if small is not None:
        return [small]
    exposed = vitals.exposed_transfer_share or 0.0
    if (vitals.pageable_share or 0.0) >= MOSTLY:
        return [_pageable(vitals, exposed)]
    idle = behind_copies_share(vitals)
    if blocks_on_pinned(vitals) and vitals.gpu_outruns_host:  # the GPU has idle time in which it could copy
        return [_blocking(vitals, exposed + idle)]
    findings = [_blocking(vitals, idle)] if idle >= NAMING_BAR else []
    return [*findings, _slow_link(vitals, exposed) or _heavy(vitals, exposed)]


def _many_small(vitals: Vitals) -> Finding | None:
    """Reports COPIES or more small copies per batch; the headline counts them per step."""
    traffic, copies = vitals.traffic, vitals.transfers_per_step or 0.0
    nbytes, share = vitals.transfer_bytes_per_step or 0.0, vitals.transfer_share or 0.0
    if traffic is None or copies / vitals.rounds < COPIES or nbytes / copies >= SMALL_BYTES:
        return None
    if traffic.small < MOSTLY * traffic.to_device:
        return None
    idle_share = vitals.caught_up_share
    if idle_share is None or vitals.transfer_share is None:
        return None
    cost = max(vitals.exposed_transfer_share or 0.0, share if vitals.gpu_outruns_host else 0.0)
    cost = gpu_pace.at_most(vitals, cost)
    each_s = share * (vitals.host_step_s or 0.0) / copies
    return Finding(
        rule="many-small-transfers",
        kind="lost",
        headline=f"{formatting.grouped(copies)} small copies a step to the GPU take {formatting.share(cost)} of the "
        "time: each call costs more than its bytes.",
        cost_share=cost,
        evidence=(
            f"{formatting.average(copies)} copies of {formatting.size(nbytes / copies)} a step, "
            f"{formatting.seconds(each_s)} each; {traffic.small} of {traffic.to_device} below 64 kB",
            f"the GPU has nothing queued in {formatting.share(idle_share)} of its steps",
            *hot_lines(vitals, ("transfer",)),
        ),
        prescriptions=(PACKED,),
    )


def _pageable(vitals: Vitals, exposed: float) -> Finding:
    """Builds the finding that most copies come from pageable memory; `exposed` is the share the GPU waits for them."""
    pins = vitals.loader is not None and vitals.loader.pin_memory
    pinned = Prescription(
        text="Pin the loader's batches",
        safety=Safety.SAFE,
        settings={"pin_memory": True},
        code="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    ).expecting(forecast(vitals, {"pin_memory": True}))
    if not vitals.workers:
        text = "Pin the loader's batches, with a worker: without workers the loop pins each batch itself"
        pinned = replace(pinned, text=text, code=pinned.code.replace("...", "num_workers=1"))
    cost = gpu_pace.at_most(vitals, exposed)
    return Finding(
        rule="pageable-transfer",
        kind="lost",
        headline=f"The GPU waits {formatting.share(cost)} of the time for copies from pageable memory.",
        cost_share=cost,
        evidence=(
            f"{_copied(vitals)}, {formatting.share(vitals.pageable_share)} of the copies from pageable memory",
            *hot_lines(vitals, ("transfer",)),
        ),
        prescriptions=(OWN_TYPE if pins else pinned, AHEAD),
    )


def _blocking(vitals: Vitals, cost: float) -> Finding:
    """Builds the finding that the loop waits for its copies from pinned memory; `cost` is the share the GPU idles."""
    traffic = vitals.traffic
    waits = f"{traffic.blocking_pinned} of {traffic.to_device}" if traffic is not None else "most"
    waited_s = (vitals.transfer_share or 0.0) * (vitals.host_step_s or 0.0)
    cost = gpu_pace.at_most(vitals, cost)
    return Finding(
        rule="blocking-transfer",
        kind="lost",
        headline=f"The loop waits for each copy from pinned memory; the GPU then idles {formatting.share(cost)} of "
        "the time.",
        cost_share=cost,
        evidence=(
            f"{waits} copies from pinned memory without non_blocking=True",
            f"the host waits {formatting.seconds(waited_s)} a step for them; {_copied(vitals)}",
        ),
        prescriptions=(
            Prescription(
                text="Copy with non_blocking=True",
                safety=Safety.BY_HAND,
                code="batch = batch.to(device, non_blocking=True)",
            ).expecting(without_copies(vitals, pins=False)),
        ),
    )


def _slow_link(vitals: Vitals, exposed: float) -> Finding | None:
    """Reports a PCIe link below what card and slot allow; `exposed` is the share the GPU waits for copies."""
    gen, width, best_gen, best_width = (
        round(x or 0.0) for x in (vitals.pcie_gen, vitals.pcie_width, vitals.pcie_gen_max, vitals.pcie_width_max)
    )
    if vitals.c2c_bytes_per_s is not None:
        return None  # copies take another link
    now, best = link_gb_per_s(gen, width), link_gb_per_s(best_gen, best_width)
    if now is None or best is None or now >= best:
        return None
    cost = gpu_pace.at_most(vitals, exposed * (1.0 - now / best))
    return Finding(
        rule="slow-link",
        kind="at-most",
        headline=f"The GPU's link runs at PCIe gen {gen} x{width} instead of gen {best_gen} x{best_width}: at most "
        f"{formatting.share(cost)} of the time.",
        cost_share=cost,
        evidence=(
            f"the GPU waits for copies {formatting.share(exposed)} of the time; {_copied(vitals)}",
            f"{formatting.bandwidth(1e9 * now)} instead of {formatting.bandwidth(1e9 * best)}",
        ),
        prescriptions=(SEATED, NARROW, AHEAD),
    )


def _heavy(vitals: Vitals, exposed: float) -> Finding:
    """Builds the finding that the GPU waits for large copies; `exposed` is the share it waits."""
    traffic, nbytes = vitals.traffic, vitals.transfer_bytes_per_step or 0.0
    wide = traffic.wide_bytes / traffic.to_device_bytes if traffic is not None and traffic.to_device_bytes else 0.0
    cost = gpu_pace.at_most(vitals, exposed)
    link = (f"the copies go over {vitals.link_name}",) if vitals.link_bytes_per_s is not None else ()
    return Finding(
        rule="heavy-transfer",
        kind="lost",
        headline=f"The GPU waits {formatting.share(cost)} of the time for copies: {formatting.size(nbytes)} a step.",
        cost_share=cost,
        evidence=(f"{_copied(vitals)}, {formatting.share(wide)} of the bytes in large float tensors", *link),
        prescriptions=(NARROW, AHEAD) if wide >= MOSTLY else (AHEAD,),
    )


def _copied(vitals: Vitals) -> str:
    """Describes a step's copies: `2 copies and 48 MiB a step (1.5 MiB a sample)`."""
    copies, nbytes, samples = vitals.transfers_per_step, vitals.transfer_bytes_per_step, vitals.samples_per_step
    each = f" ({formatting.size(nbytes / samples)} a sample)" if nbytes and samples else ""
    plural = "copy" if copies is not None and round(copies, 1) == 1 else "copies"
    return f"{formatting.average(copies)} {plural} and {formatting.size(nbytes)} a step{each}"

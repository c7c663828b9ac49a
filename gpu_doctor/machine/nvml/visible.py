"""Finds the GPUs that this process can see, as NVML's handles in torch's order: the two number the cards differently.

NVML counts all cards by PCI bus, even those that a device cgroup (SLURM) forbids. CUDA counts the fastest first, and
only the cards that the cgroup and CUDA_VISIBLE_DEVICES allow. Cards are matched by UUID if torch reports it, else by
that variable. The vendor module is an argument, so that a test can pass a stub.
GPU: not yet run on one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_doctor.recording import DeviceSetup


@dataclass(frozen=True)
class Gpu:
    """One GPU of this process."""

    index: int
    """torch's index."""
    handle: Any
    """NVML's handle for memory and processes: of the card, or of this process' MIG slice of it."""
    card: Any
    """NVML's handle of the whole card, for temperature, power, clocks and link."""
    name: str
    uuid: str
    mig: bool = False
    """True if the device is a MIG slice: the card's utilization and counters are then not its own."""


@dataclass(frozen=True)
class Sight:
    """The GPUs that this process sees, and how reliable their order is."""

    gpus: tuple[Gpu, ...]
    cards: int
    """Number of cards that NVML counts, visible to this process or not."""
    refused: int = 0
    """Number of these without a handle from NVML: this process may not open them, and CUDA does not count them."""
    sure: bool = True
    """True if the indices are certain: torch reported UUIDs, or there is only one card."""
    note: str = ""
    """Sentence for the user about missing or misnumbered GPUs; empty if there is none."""


def ask(vendor: Any, name: str, *arguments: Any) -> Any | None:
    """Calls a function of NVML; returns None if it fails, is not supported, or is missing in this pynvml."""
    try:
        return getattr(vendor, name)(*arguments)
    except Exception:
        return None


def text(value: Any) -> str:
    """Converts a name or UUID to str: pynvml before 11.5 returns bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def look(vendor: Any, uuids: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Sight:
    """Finds this process' GPUs; NVML must be initialised.

    Args:
        vendor: The module pynvml.
        uuids: UUIDs of torch's devices, in torch's order, with or without `GPU-`; empty = unknown.
        environ: Environment variables; None = os.environ.
    """
    environ = os.environ if environ is None else environ
    count = int(ask(vendor, "nvmlDeviceGetCount") or 0)
    handles = [ask(vendor, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    # CUDA numbers only cards it may open: with the first of four forbidden, CUDA_VISIBLE_DEVICES=0 is the second.
    cards = [card for card in handles if card is not None]
    refused = count - len(cards)
    ordered, note = _cuda_order(vendor, cards, environ.get("CUDA_DEVICE_ORDER", ""))
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    chosen = ordered if allowed is None else _chosen(vendor, allowed, ordered)
    gpus = tuple(_gpu(vendor, index, handle) for index, handle in enumerate(chosen))
    if uuids:
        named = _named(vendor, uuids, cards, gpus)
        if not named and len(uuids) == count == 1:  # a virtual machine may have another UUID for its only card
            named = tuple(_gpu(vendor, 0, card) for card in cards)
        missing = len(uuids) - len(named)
        note = f"NVML does not know {missing} of the GPUs that torch names: their readings are missing."
        return Sight(named, count, refused, note=note if missing else "")
    sure = len(cards) == 1 and not any(gpu.mig for gpu in gpus)
    return Sight(gpus, count, refused, sure, note if len(gpus) > 1 else "")


def device_setup(vendor: Any, gpu: Gpu) -> DeviceSetup:
    """Returns a GPU's properties as plain values."""
    memory = ask(vendor, "nvmlDeviceGetMemoryInfo", gpu.handle)
    capability = ask(vendor, "nvmlDeviceGetCudaComputeCapability", gpu.card)
    return DeviceSetup(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        memory_bytes=None if memory is None else int(memory.total),
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
    )


def _gpu(vendor: Any, index: int, handle: Any) -> Gpu:
    """Makes a Gpu from the handle of a card or of a MIG slice; CUDA uses the first slice of a card in MIG mode."""
    card = ask(vendor, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    mig = card is not None
    if card is None:
        card = handle
        mode = ask(vendor, "nvmlDeviceGetMigMode", handle)
        if mode is not None and mode[0]:
            handle = next(iter(_slices(vendor, handle)), handle)
            mig = True
    uuid = text(ask(vendor, "nvmlDeviceGetUUID", handle))
    name = text(ask(vendor, "nvmlDeviceGetName", handle)) or text(ask(vendor, "nvmlDeviceGetName", card))
    return Gpu(index, handle, card, name or "NVIDIA GPU", uuid, mig)


def _slices(vendor: Any, card: Any) -> list[Any]:
    """Returns the handles of a card's MIG slices."""
    count = int(ask(vendor, "nvmlDeviceGetMaxMigDeviceCount", card) or 0)
    found = [ask(vendor, "nvmlDeviceGetMigDeviceHandleByIndex", card, index) for index in range(count)]
    return [handle for handle in found if handle is not None]


def _named(vendor: Any, uuids: Sequence[str], cards: Sequence[Any], guessed: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Returns the GPUs with these UUIDs, numbered in their order; those that NVML does not know are left out.

    Args:
        vendor: The module pynvml.
        uuids: UUIDs of torch's devices.
        cards: Handles of the cards that this process may open.
        guessed: GPUs according to CUDA_VISIBLE_DEVICES, which shows the MIG slice if torch reports the card's UUID.
    """
    handles: dict[str, Any] = {}
    for card in cards:
        for handle in (card, *_slices(vendor, card)):
            handles[_uuid(vendor, handle)] = handle
    handles |= {_uuid(vendor, gpu.card): gpu.handle for gpu in guessed if gpu.mig}
    found = [(index, handles.get(_bare(uuid))) for index, uuid in enumerate(uuids)]
    return tuple(_gpu(vendor, index, handle) for index, handle in found if handle is not None)


def _uuid(vendor: Any, handle: Any) -> str:
    return _bare(text(ask(vendor, "nvmlDeviceGetUUID", handle)))


def _bare(uuid: str) -> str:
    """Returns a UUID in lower case, without its prefix."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _cuda_order(vendor: Any, cards: Sequence[Any], order: str) -> tuple[list[Any], str]:
    """Sorts the cards as CUDA counts them without CUDA_VISIBLE_DEVICES; adds a note if the order cannot be known.

    Args:
        vendor: The module pynvml.
        cards: Handles of the cards.
        order: Value of CUDA_DEVICE_ORDER.
    """

    def bus(card: Any) -> str:
        info = ask(vendor, "nvmlDeviceGetPciInfo", card)
        return text(getattr(info, "busId", ""))

    ordered = sorted(cards, key=bus) if all(map(bus, cards)) else list(cards)
    names = {text(ask(vendor, "nvmlDeviceGetName", card)) for card in cards}
    if order == "PCI_BUS_ID" or len(names) <= 1:
        return ordered, ""
    return ordered, (
        "The GPUs differ and CUDA counts the fastest first: unless torch names them, readings are numbered by PCI bus. "
        "Set CUDA_DEVICE_ORDER=PCI_BUS_ID to make both orders the same."
    )


def _chosen(vendor: Any, allowed: str, cards: Sequence[Any]) -> list[Any]:
    """Returns the cards and slices that CUDA_VISIBLE_DEVICES allows, interpreted as CUDA does.

    An entry without a card hides itself and all entries after it; an entry given twice hides all cards (as in
    torch.cuda._parse_visible_devices).

    Args:
        vendor: The module pynvml.
        allowed: Value of the variable.
        cards: Handles of the cards in CUDA's order.
    """
    chosen: list[Any] = []
    seen: list[Any] = []
    for entry in (part.strip() for part in allowed.split(",")):
        if entry.startswith("MIG-"):
            key, handle = entry, ask(vendor, "nvmlDeviceGetHandleByUUID", entry)
        elif entry.startswith("GPU-"):
            at = [i for i, card in enumerate(cards) if text(ask(vendor, "nvmlDeviceGetUUID", card)).startswith(entry)]
            key, handle = (str(at[0]), cards[at[0]]) if len(at) == 1 else ("", None)
        else:
            number = _leading_number(entry)
            key, handle = (str(number), cards[number]) if 0 <= number < len(cards) else ("", None)
        if handle is None:
            break
        if key in seen:
            return []
        seen.append(key)
        chosen.append(handle)
    return chosen


def _leading_number(entry: str) -> int:
    """Returns the number at the start of an entry (1 for `1gpu`, as CUDA does), -1 if there is none."""
    digits = entry[: len(entry) - len(entry.lstrip("0123456789"))]
    return int(digits) if digits else -1

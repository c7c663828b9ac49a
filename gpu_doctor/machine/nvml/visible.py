"""Which GPUs this process can see, in torch's order, as NVML handles: the two number the cards differently.

NVML counts by PCI bus, cards that a device cgroup (SLURM) forbids included; CUDA counts the fastest first, and only
what the cgroup and then CUDA_VISIBLE_DEVICES leave. Cards are matched by UUID where torch can tell, else by that
variable. The vendor module is handed in, so that a stub can stand for it.
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
    """One device of this process."""

    index: int
    """torch's number."""
    handle: Any
    """What memory and processes are asked of: the card, or this process' MIG slice of it."""
    card: Any
    """The whole card: temperature, power, clocks, link."""
    name: str
    uuid: str
    mig: bool = False
    """The device is a MIG slice: the card's utilization and counters are not its own."""


@dataclass(frozen=True)
class Sight:
    """The GPUs that this process sees, and what there is to say about it."""

    gpus: tuple[Gpu, ...]
    cards: int
    """Cards that NVML counts, seen by this process or not."""
    refused: int = 0
    """Cards of these that NVML gives no handle of: this process may not open them, and CUDA leaves them out."""
    sure: bool = True
    """No card stands under another one's number: torch named them, or there is one only."""
    note: str = ""


def ask(vendor: Any, name: str, *arguments: Any) -> Any | None:
    """The answer of one NVML function; None if it fails, is not supported, or this pynvml does not have it."""
    try:
        return getattr(vendor, name)(*arguments)
    except Exception:
        return None


def text(value: Any) -> str:
    """A name or UUID: bytes in pynvml before 11.5, str since."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def look(vendor: Any, uuids: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> Sight:
    """Finds this process' GPUs; NVML must be initialised.

    Args:
        vendor: the module pynvml.
        uuids: of torch's devices, in torch's order, with or without `GPU-`; empty = unknown.
        environ: of this process; None = os.environ.
    """
    environ = os.environ if environ is None else environ
    count = int(ask(vendor, "nvmlDeviceGetCount") or 0)
    handles = [ask(vendor, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    # CUDA numbers what it may open: with the first of four cards forbidden, CUDA_VISIBLE_DEVICES=0 is the second one.
    cards = [card for card in handles if card is not None]
    refused = count - len(cards)
    ordered, note = _cuda_order(vendor, cards, environ.get("CUDA_DEVICE_ORDER", ""))
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    chosen = ordered if allowed is None else _chosen(vendor, allowed, ordered)
    gpus = tuple(_gpu(vendor, index, handle) for index, handle in enumerate(chosen))
    if uuids:
        named = _named(vendor, uuids, cards, gpus)
        if not named and len(uuids) == count == 1:  # a virtual machine may know its one card by another UUID
            named = tuple(_gpu(vendor, 0, card) for card in cards)
        missing = len(uuids) - len(named)
        note = f"NVML does not know {missing} of the GPUs that torch names: their readings are missing."
        return Sight(named, count, refused, note=note if missing else "")
    sure = len(cards) == 1 and not any(gpu.mig for gpu in gpus)
    return Sight(gpus, count, refused, sure, note if len(gpus) > 1 else "")


def device_setup(vendor: Any, gpu: Gpu) -> DeviceSetup:
    """The device as plain values."""
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
    """A device from the handle of a card or of a MIG slice; of a card in MIG mode CUDA uses the first slice."""
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
    count = int(ask(vendor, "nvmlDeviceGetMaxMigDeviceCount", card) or 0)
    found = [ask(vendor, "nvmlDeviceGetMigDeviceHandleByIndex", card, index) for index in range(count)]
    return [one for one in found if one is not None]


def _named(vendor: Any, uuids: Sequence[str], cards: Sequence[Any], guessed: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The devices with these UUIDs, numbered in their order; one that NVML does not know is left out.

    Args:
        vendor: the module pynvml.
        uuids: of torch's devices.
        cards: handles of what this process may open.
        guessed: what CUDA_VISIBLE_DEVICES leaves: it tells which MIG slice is meant where torch names the card.
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
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _cuda_order(vendor: Any, cards: Sequence[Any], order: str) -> tuple[list[Any], str]:
    """The cards as CUDA counts them without CUDA_VISIBLE_DEVICES, and a note where that cannot be known."""

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
    """What CUDA_VISIBLE_DEVICES leaves, read as CUDA reads it.

    The first entry that names nothing hides itself and all after it; an entry given twice leaves nothing (the same
    reading as in torch.cuda._parse_visible_devices).
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
    """The number that an entry starts with (`1gpu` means 1, as CUDA reads it), -1 if with none."""
    digits = entry[: len(entry) - len(entry.lstrip("0123456789"))]
    return int(digits) if digits else -1

"""Which GPUs this process can see, in torch's order, as NVML handles: the two number the cards differently.

NVML counts by PCI bus; CUDA counts the fastest first and only what CUDA_VISIBLE_DEVICES leaves. Cards are matched by
UUID where torch can tell, else by that variable. The vendor module is handed in, so that a stub can stand for it.
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
    cards = [ask(vendor, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    by_uuid = _by_uuid(vendor, uuids, cards)
    if by_uuid:
        return Sight(by_uuid, count)
    allowed = environ.get("CUDA_VISIBLE_DEVICES")
    ordered, note = _cuda_order(vendor, cards, environ.get("CUDA_DEVICE_ORDER", ""))
    chosen = ordered if allowed is None else _chosen(vendor, allowed, ordered)
    gpus = [_gpu(vendor, index, handle) for index, handle in enumerate(chosen) if handle is not None]
    return Sight(tuple(gpus), count, note if len(gpus) > 1 else "")


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


def _by_uuid(vendor: Any, uuids: Sequence[str], cards: Sequence[Any]) -> tuple[Gpu, ...]:
    """The devices with these UUIDs; empty if not one was found."""
    if not uuids:
        return ()
    handles: dict[str, Any] = {}
    for card in cards:
        for handle in (card, *_slices(vendor, card)) if card is not None else ():
            handles[_bare(text(ask(vendor, "nvmlDeviceGetUUID", handle)))] = handle
    found = [(index, handles.get(_bare(uuid))) for index, uuid in enumerate(uuids)]
    return tuple(_gpu(vendor, index, handle) for index, handle in found if handle is not None)


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _cuda_order(vendor: Any, cards: Sequence[Any], order: str) -> tuple[list[Any], str]:
    """The cards as CUDA counts them without CUDA_VISIBLE_DEVICES, and a note where that cannot be known."""

    def bus(card: Any) -> str:
        info = ask(vendor, "nvmlDeviceGetPciInfo", card)
        return text(getattr(info, "busId", ""))

    ordered = sorted(cards, key=bus) if all(card is not None and bus(card) for card in cards) else list(cards)
    names = {text(ask(vendor, "nvmlDeviceGetName", card)) for card in cards if card is not None}
    if order == "PCI_BUS_ID" or len(names) <= 1:
        return ordered, ""
    return ordered, (
        "The GPUs differ and CUDA counts the fastest first: until torch uses one, readings are numbered by PCI bus. "
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

"""Judges GPU, driver and torch build in a check-up; a machine without a GPU gets one neutral sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.cards import NATIVE, TRANSLATED, architecture_support, too_old, version
from gpu_doctor.machine.checkup.card import card_lines
from gpu_doctor.machine.checkup.facts import CardFacts, Facts, TorchFacts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, WRONG, CheckLine

_GET_TORCH: Final = "see pytorch.org/get-started/locally"
_NO_MESSAGE: Final = ("no-driver", "")


def gpu_lines(facts: Facts) -> Iterator[CheckLine]:
    """Yields all lines about GPUs, driver and torch build."""
    torch = facts.torch
    if torch is None:
        yield CheckLine("torch", WRONG, "torch cannot be imported.", f"Install it: {_GET_TORCH}.")
    if torch is not None and torch.hip:
        yield _rocm(torch)
        return
    if not _nvidia_here(facts):
        yield _no_nvidia(facts)
        return
    yield from seen(facts)
    yield from driver(facts)
    if torch is not None:
        yield from build(facts, torch)
        yield from _merged(facts, lambda card: architecture(card, torch))
    for judge in card_lines(facts):
        yield from _merged(facts, judge)


def _nvidia_here(facts: Facts) -> bool:
    """Returns True if there is any sign of an NVIDIA card."""
    available = facts.torch.available if facts.torch is not None else False
    return bool(
        facts.cards
        or facts.cards_installed
        or facts.nvidia_on_bus
        or available
        or (available is None and facts.nvml_problem)
        or facts.nvml_problem not in (*_NO_MESSAGE, "no-library")
    )


def _no_nvidia(facts: Facts) -> CheckLine:
    """Returns the line for a machine without an NVIDIA card."""
    if facts.torch is not None and facts.torch.mps:
        found = "Apple GPU through MPS. Its utilization cannot be read; times and memory are measured."
        return CheckLine("GPU", OK, found)
    return CheckLine("GPU", OK, "No GPU: training runs on the CPU.")


def _rocm(torch: TorchFacts) -> CheckLine:
    """Returns the line for a torch build for AMD's cards."""
    sees = f" and sees {_count(torch.devices)}" if torch.available else ""
    found = f"torch {torch.version} is a ROCm build (HIP {torch.hip}){sees}."
    return CheckLine("GPU", OK, f"{found} Utilization and clocks are not measured: that works on NVIDIA cards only.")


def seen(facts: Facts) -> Iterator[CheckLine]:
    """Yields lines that compare the GPUs that NVML sees with those that torch sees."""
    torch, cards = facts.torch, facts.cards
    if not facts.cards_installed:
        if torch is not None and torch.available:
            found = f"torch sees {_count(torch.devices)}, but NVML does not answer: its readings will be missing."
            yield CheckLine("GPU", UNKNOWN, found)
        return
    names = "; ".join(f"{card.name}{_memory(card)}" for card in cards)
    if not cards:
        yield _none_seen(facts)
    elif torch is None or not torch.available:
        yield CheckLine("GPU", OK, f"NVML sees {_count(len(cards))}: {names}.")
    elif torch.devices != len(cards):
        found = f"torch sees {_count(torch.devices)}, NVML {_count(len(cards))} ({names})."
        to_do = "Was CUDA_VISIBLE_DEVICES changed after CUDA was first used? Restart the kernel, then check again."
        yield CheckLine("GPU", LOOK, found, to_do)
    else:
        hidden = facts.cards_installed - len(cards)
        rest = f" {hidden} more in the machine, not visible to this process." if hidden > 0 else ""
        yield CheckLine("GPU", OK, f"torch and NVML both see {_count(len(cards))}: {names}.{rest}")
    if facts.order_note:
        found, _, to_do = facts.order_note.partition(". ")
        yield CheckLine("GPU order", LOOK, f"{found}.", to_do)


def _none_seen(facts: Facts) -> CheckLine:
    """Returns the line for a process that sees none of the GPUs that NVML counts, with the reason."""
    torch, installed, refused = facts.torch, _count(facts.cards_installed), facts.cards_refused
    if torch is not None and torch.available:
        found = f"torch sees {_count(torch.devices)}, but NVML can read none of them: its readings will be missing."
        return CheckLine("GPU", UNKNOWN, found)
    if refused == facts.cards_installed:
        found = f"{installed} in the machine, but this process may not open {'it' if refused == 1 else 'any'}."
        return CheckLine("GPU", LOOK, found, "Ask the scheduler for a GPU (SLURM: --gres=gpu:1), or its administrator.")
    found = f"{installed} in the machine, hidden by CUDA_VISIBLE_DEVICES={_shown(facts)}."
    to_do = "Unset CUDA_VISIBLE_DEVICES and restart the kernel to use it."
    if refused:
        found = f"{found[:-1]}; this process may not open {refused} of them."
        to_do = f"Of the other {facts.cards_installed - refused} CUDA counts from 0: name these, or unset the variable."
    return CheckLine("GPU", LOOK, found, to_do)


def driver(facts: Facts) -> Iterator[CheckLine]:
    """Yields the line about the driver: whether it answers, and whether it supports torch's CUDA version."""
    problem, torch = facts.nvml_problem, facts.torch
    if problem == "no-library":
        found = "nvidia-ml-py is not installed: GPU utilization, clocks and power cannot be read."
        yield CheckLine("driver", UNKNOWN, found, "pip install nvidia-ml-py")
    elif problem == "no-driver":
        if facts.nvidia_on_bus and (torch is None or torch.available is False):
            yield _driver_missing(facts, _count(facts.nvidia_on_bus))
        else:
            yield CheckLine("driver", UNKNOWN, "NVIDIA's management library is not reachable from here.")
    elif problem:
        to_do = "After a driver update, restart the machine; otherwise run nvidia-smi to see the error."
        yield CheckLine("driver", WRONG, f"The NVIDIA driver does not answer: {problem.rstrip('.')}.", to_do)
    elif torch is None or not torch.cuda or facts.driver_cuda is None:
        yield CheckLine("driver", OK, f"NVIDIA driver {facts.driver or 'of unknown version'}.")
    else:
        yield _driver_and_build(facts, torch, facts.driver_cuda)


def _driver_missing(facts: Facts, cards: str) -> CheckLine:
    """Returns the line for cards on the PCI bus whose driver is missing or not accessible."""
    if facts.driver_loaded:
        found = f"The machine has {cards} by NVIDIA and a driver, but this container or user has no access."
        to_do = "To use one, start the container with --gpus all (NVIDIA Container Toolkit)."
        return CheckLine("driver", LOOK, found, to_do)
    found = f"{cards} by NVIDIA on the PCI bus, but no NVIDIA driver: torch cannot use it."
    return CheckLine("driver", WRONG, found, "Install the NVIDIA driver (nvidia.com/drivers), then restart.")


def _driver_and_build(facts: Facts, torch: TorchFacts, serves: tuple[int, int]) -> CheckLine:
    """Returns the line that compares the driver's CUDA version with that of torch (see cards.too_old)."""
    built = version(torch.cuda)
    found = f"NVIDIA driver {facts.driver} supports CUDA {serves[0]}.{serves[1]}; torch is built for {torch.cuda}."
    if too_old(serves, built) and not torch.available:
        older = f"install a torch built for CUDA {serves[0]} ({_GET_TORCH})"
        return CheckLine("driver", WRONG, f"{found} The driver is too old.", f"Update the driver, or {older}.")
    if built > serves:
        return CheckLine("driver", OK, f"{found} The older driver works, through CUDA's version compatibility.")
    return CheckLine("driver", OK, found)


def build(facts: Facts, torch: TorchFacts) -> Iterator[CheckLine]:
    """Yields the line about the torch build: whether it can use the card at all."""
    if not torch.cuda:
        card = facts.cards[0].name if facts.cards else "an NVIDIA card"
        found = f"torch {torch.version} is built for the CPU only: training would run on the CPU, not on {card}."
        serves = f" for CUDA {facts.driver_cuda[0]}.{facts.driver_cuda[1]} or lower" if facts.driver_cuda else ""
        to_do = f"Install a CUDA build of torch{serves} ({_GET_TORCH}), then restart the kernel."
        yield CheckLine("torch build", WRONG, found, to_do)
    elif torch.available:
        yield CheckLine("torch build", OK, f"torch {torch.version} with CUDA {torch.cuda} can use the GPU.")
    elif facts.cards and torch.available is False:
        found = f"torch {torch.version} is built for CUDA {torch.cuda}, but the driver's CUDA library is missing."
        to_do = "In a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility; else install the whole driver."
        yield CheckLine("torch build", WRONG, found, to_do)
    elif facts.cards and facts.driver_cuda is not None and not too_old(facts.driver_cuda, version(torch.cuda)):
        yield CheckLine(
            "torch build", OK, f"torch {torch.version} is built for CUDA {torch.cuda}, which the driver supports."
        )
    else:
        yield CheckLine("torch build", UNKNOWN, f"torch {torch.version} is built for CUDA {torch.cuda}.")


def architecture(card: CardFacts, torch: TorchFacts) -> CheckLine | None:
    """Returns the line about machine code for the card in the torch build (see cards.architecture_support)."""
    if card.capability is None or not torch.arches:
        return None
    major, minor = card.capability
    found = f"compute capability {major}.{minor}"
    support = architecture_support(card.capability, torch.arches)
    if support == NATIVE:
        return CheckLine("architecture", OK, f"{found}: supported by this torch build.")
    if support == TRANSLATED:
        found = f"{found}: not in this torch build, which compiles its kernels at first use (slow start)."
        return CheckLine("architecture", LOOK, found, f"Install a newer torch build: {_GET_TORCH}.")
    have = ", ".join(torch.arches)
    to_do = f"Install a torch build that has sm_{major}{minor}: {_GET_TORCH}."
    return CheckLine("architecture", WRONG, f"{found}: this torch build has only {have} and cannot run on it.", to_do)


def _merged(facts: Facts, judge: Callable[[CardFacts], CheckLine | None]) -> Iterator[CheckLine]:
    """Yields the lines of all cards for one judgement; cards with the same line share it."""
    lines: dict[CheckLine, list[str]] = {}
    for card in facts.cards:
        line = judge(card)
        if line is not None:
            lines.setdefault(line, []).append(str(card.index))
    for line, indices in lines.items():
        of = f"GPU {', '.join(indices)}: " if len(facts.cards) > 1 else ""
        yield CheckLine(line.topic, line.status, of + line.found, line.to_do)


def _count(count: int) -> str:
    return f"{count} GPU{'s' * (count != 1)}"


def _memory(card: CardFacts) -> str:
    return "" if card.memory_bytes is None else f" ({formatting.size(card.memory_bytes)})"


def _shown(facts: Facts) -> str:
    return repr(facts.visible_devices or "")

"""What a check-up says of one card: whether it is a slice, and who else uses it. None = nothing to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.checkup.facts import CardFacts, Facts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, CheckLine

STRAY_BYTES: Final = 2 << 30
"""So much may be in use on an idle card for the driver itself."""
BUSY_PCT: Final = 10.0


def card_lines(facts: Facts) -> tuple[Callable[[CardFacts], CheckLine | None], ...]:
    """The judgements of one card, in the order of the report."""
    return mig_slice, lambda card: neighbours(card, facts)


def mig_slice(card: CardFacts) -> CheckLine | None:
    """MIG is noted: part of a card, and without counters of its own."""
    if not card.mig:
        return None
    memory = f" with {formatting.size(card.memory_bytes)}" if card.memory_bytes is not None else ""
    found = f"A MIG slice{memory}: you have a part of the card, and NVML does not measure its utilization."
    return CheckLine("MIG", OK, found)


def neighbours(card: CardFacts, facts: Facts) -> CheckLine:
    """Other processes on the card, or signs of them."""
    count, topic = card.other_processes, "other processes"
    idle_here = not facts.cuda_in_use
    if count:
        uses, holds = ("process uses", "holds") if count == 1 else ("processes use", "hold")
        held = f" and {holds} {formatting.size(card.other_bytes)}{_of(card)}" if card.other_bytes is not None else ""
        found = f"{count} other {uses} the GPU{held}."
        return CheckLine(
            topic, LOOK, found, "Run nvidia-smi and shut down what you do not need (often a forgotten kernel)."
        )
    if idle_here and (card.memory_used_bytes or 0) > STRAY_BYTES and not card.mig:
        found = (
            f"{formatting.size(card.memory_used_bytes or 0)}{_of(card)} in use by a process that is not visible here."
        )
        return CheckLine(topic, LOOK, found, "Another container or user may share the GPU: run nvidia-smi on the host.")
    if idle_here and (card.busy_pct or 0) >= BUSY_PCT:
        found = f"The GPU is {formatting.percent(card.busy_pct)} busy, though this process does not use it."
        return CheckLine(topic, LOOK, found, "Another program uses it: run nvidia-smi on the host.")
    if count is None:
        return CheckLine(topic, UNKNOWN, "The driver does not list processes here (usual inside a container).")
    return CheckLine(topic, OK, "None on the GPU.")


def _of(card: CardFacts) -> str:
    return f" of {formatting.size(card.memory_bytes)}" if card.memory_bytes is not None else ""

"""Judges one card in a check-up: whether it is a MIG slice, and whether other processes use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.checkup.facts import CardFacts, Facts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, CheckLine

STRAY_BYTES: Final = 2 << 30
"""Memory that the driver itself may use on an idle card, in bytes."""
BUSY_PCT: Final = 10.0
"""Utilization from which another program must be using the card, in per cent."""


def card_lines(facts: Facts) -> tuple[Callable[[CardFacts], CheckLine | None], ...]:
    """Returns the functions that judge one card, in the order of the report; each returns None for no line."""
    return mig_slice, lambda card: neighbours(card, facts)


def mig_slice(card: CardFacts) -> CheckLine | None:
    """Returns a line for a MIG slice, which is a part of a card without utilization counters of its own."""
    if not card.mig:
        return None
    memory = f" with {formatting.size(card.memory_bytes)}" if card.memory_bytes is not None else ""
    found = f"The GPU is a MIG slice{memory}: a part of a card, whose utilization NVML does not measure."
    return CheckLine("MIG", OK, found)


def neighbours(card: CardFacts, facts: Facts) -> CheckLine:
    """Returns the line about other processes on the card, or about signs of them."""
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
    """Returns ` of ` and the card's memory; empty if that is not known."""
    return f" of {formatting.size(card.memory_bytes)}" if card.memory_bytes is not None else ""

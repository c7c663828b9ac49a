"""What a check-up says of one card: slice, neighbours, memory errors, link, power, clocks. None = nothing to say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpu_doctor import formatting
from gpu_doctor.machine.cards import HELD_BIT, POWER_CAP_BIT, THROTTLE_BITS, link_gb_per_s
from gpu_doctor.machine.checkup.facts import CardFacts, Facts
from gpu_doctor.machine.checkup.result import LOOK, OK, UNKNOWN, WRONG, CheckLine

STRAY_BYTES: Final = 2 << 30
"""So much may be in use on an idle card for the driver itself."""
POWER_CAP_SHARE: Final = 0.95
BUSY_PCT: Final = 10.0
MANY_CARDS: Final = 4
"""From here on the start of all of them is long enough to be noticed (NVIDIA's Driver Persistence: 1 to 3 s a GPU)."""
_ONLY_A_LOOK: Final = {0x20, 0x10}
"""Limits that come and go by themselves; the others say that heat or power is not in order."""


def card_lines(facts: Facts) -> tuple[Callable[[CardFacts], CheckLine | None], ...]:
    """The judgements of one card, in the order of the report."""
    return (
        mig_slice,
        lambda card: neighbours(card, facts),
        memory_errors,
        link,
        power,
        clocks,
        lambda card: persistence(card, facts),
    )


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


def memory_errors(card: CardFacts) -> CheckLine | None:
    """Uncorrected memory errors, only where there are any."""
    if not card.ecc_errors:
        return None
    found = f"{card.ecc_errors} uncorrected memory error{'s' * (card.ecc_errors != 1)} since the driver was loaded."
    return CheckLine(
        "GPU memory", WRONG, found, "Results may be wrong: reset or replace the card (nvidia-smi -q -d ECC)."
    )


def link(card: CardFacts) -> CheckLine | None:
    """PCIe link: lanes, the slot's generation, and the generation now where the card is busy."""
    gen, width, gen_max, width_max = card.pcie_gen, card.pcie_width, card.pcie_gen_max, card.pcie_width_max
    if not gen or not width or not gen_max or not width_max:
        return CheckLine("PCIe link", UNKNOWN, "The driver does not report the PCIe link.")
    card_gen = max(card.pcie_gen_card or gen_max, gen_max)
    best = f"gen {card_gen} x{width_max} ({_bandwidth(card_gen, width_max)})"
    if width < width_max:
        found = f"x{width} of x{width_max} lanes: {_bandwidth(gen_max, width)} at gen {gen_max}, {best} possible."
        return CheckLine("PCIe link", LOOK, found, "Seat the card in a full-width slot; copies to the GPU take longer.")
    if gen_max < card_gen:
        found = f"The slot gives gen {gen_max} x{width} ({_bandwidth(gen_max, width)}), the card can do {best}."
        return CheckLine("PCIe link", LOOK, found, "A faster slot or BIOS setting shortens copies to the GPU.")
    if gen < gen_max and (card.busy_pct or 0) >= BUSY_PCT:
        found = f"gen {gen} x{width} ({_bandwidth(gen, width)}) although the GPU is busy, {best} possible."
        return CheckLine("PCIe link", LOOK, found, "Look for PCIe power saving (ASPM) or a poor riser.")
    resting = f" It drops to gen {gen} while idle, which is normal." if gen < gen_max else ""
    return CheckLine("PCIe link", OK, f"{best}.{resting}")


def power(card: CardFacts) -> CheckLine | None:
    """Power limit against the card's default."""
    limit, default = card.power_limit_w, card.power_default_w
    if limit is None:
        return CheckLine("power limit", UNKNOWN, "The driver does not report the power limit.")
    if default is not None and limit < POWER_CAP_SHARE * default:
        found = f"Capped at {formatting.whole(limit, 'W')} of the card's {formatting.whole(default, 'W')}."
        return CheckLine("power limit", LOOK, found, f"nvidia-smi -pl {round(default)} (as root) lifts the cap.")
    return CheckLine("power limit", OK, f"{formatting.whole(limit, 'W')}.")


def clocks(card: CardFacts) -> CheckLine | None:
    """Why the clocks are where they are."""
    bits = card.limit_bits
    if bits is None:
        return CheckLine("clocks", UNKNOWN, "The driver does not report what limits the clocks.")
    now = (
        f"SM clock {formatting.whole(card.sm_clock_mhz, 'MHz')}"
        if card.sm_clock_mhz is not None
        else "SM clock unknown"
    )
    now += f" of {formatting.whole(card.sm_clock_max_mhz, 'MHz')}" if card.sm_clock_max_mhz is not None else ""
    now += f", {card.temperature_c} °C" if card.temperature_c is not None else ""
    reasons = {bit: words for bit, words in THROTTLE_BITS.items() if bits & bit}
    if reasons:
        status = LOOK if set(reasons) <= _ONLY_A_LOOK else WRONG
        said = ", ".join(reasons.values())
        to_do = "Check cooling, airflow and power cables; on a rented machine, ask for another one."
        return CheckLine("clocks", status, f"Throttled: {said}. {now}.", to_do)
    if bits & HELD_BIT:
        to_do = "nvidia-smi -rac and nvidia-smi -rgc (as root) reset the clocks."
        return CheckLine("clocks", LOOK, f"A setting limits the clocks (application or locked clocks). {now}.", to_do)
    if bits & POWER_CAP_BIT:
        return CheckLine("clocks", OK, f"At the power limit, which is normal for a busy card. {now}.")
    return CheckLine("clocks", OK, f"Not throttled. {now}.")


def persistence(card: CardFacts, facts: Facts) -> CheckLine | None:
    """Persistence, only where its absence costs something: settings that will be lost, or several cards to start."""
    if card.persistence is not False or card.mig:
        return None
    limit, default = card.power_limit_w, card.power_default_w
    capped = limit is not None and default is not None and limit < POWER_CAP_SHARE * default
    to_do = "nvidia-persistenced, or nvidia-smi -pm 1 (as root), keeps it initialised."
    if capped or (card.limit_bits or 0) & HELD_BIT:
        found = "Off: settings of power limit and clocks are lost when the last process leaves the GPU."
        return CheckLine("persistence", LOOK, found, to_do)
    if facts.cards_installed >= MANY_CARDS and not facts.cuda_in_use:
        found = "Off: the first use after a pause initialises the GPU, 1 to 3 s per card (NVIDIA)."
        return CheckLine("persistence", LOOK, found, to_do)
    return None


def _of(card: CardFacts) -> str:
    return f" of {formatting.size(card.memory_bytes)}" if card.memory_bytes is not None else ""


def _bandwidth(gen: int, width: int) -> str:
    speed = link_gb_per_s(gen, width)
    return "bandwidth unknown" if speed is None else formatting.bandwidth(1e9 * speed)

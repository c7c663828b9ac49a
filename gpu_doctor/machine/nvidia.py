"""What NVIDIA's numbers mean: clock-limit bits, lanes of a link, CUDA versions of a driver, architectures of a build.

Pure arithmetic on plain values: the check-up judges a machine with it before a run, the rules a recording after one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

IDLE_BIT: Final = 0x1
HELD_BIT: Final = 0x2
"""Application or locked clocks."""
POWER_CAP_BIT: Final = 0x4
"""At the power limit, as a busy card is: a matter of the limit, no fault."""
THROTTLE_BITS: Final = {
    0x8: "hardware slowdown (too hot, or too little power)",
    0x40: "hardware thermal slowdown",
    0x80: "power brake by the power supply",
    0x20: "software thermal slowdown",
    0x10: "held to the clocks of a group (sync boost)",
}
"""NVML's clock-limit bits (nvml.h, nvmlClocksEventReason*) that mean that the card was made slower, with our words."""
LANE_GB_PER_S: Final = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s one way of one lane by PCIe generation, after line coding (PCI-SIG)."""
NATIVE: Final = 2
TRANSLATED: Final = 1
ABSENT: Final = 0


def link_gb_per_s(gen: float, width: float) -> float | None:
    """GB/s one way of a PCIe link; None for a generation that is not known here."""
    lane = LANE_GB_PER_S.get(int(gen))
    return None if lane is None else lane * width


def architecture_support(capability: tuple[int, int], arches: Sequence[str]) -> int:
    """Whether a build has machine code for a card: NATIVE, TRANSLATED at first use (slow start), or ABSENT.

    `sm_80` code runs on 8.0 and later minors of 8; `compute_80` is translated at first use on any later card; `sm_90a`
    runs on 9.0 alone (CUDA programming guide, "application compatibility").

    Args:
        capability: of the card, such as (9, 0). arches: torch.cuda.get_arch_list(), such as `sm_90`, `compute_90`.
    """
    major, minor = capability
    native = {_arch(one) for one in arches if one.startswith("sm_")} - {None}
    portable = {_arch(one) for one in arches if one.startswith("compute_")} - {None}
    exact = f"sm_{major}{minor}" in {one.rstrip("af") for one in arches}
    if exact or any(one is not None and one[0] == major and one[1] <= minor for one in native):
        return NATIVE
    return TRANSLATED if any(one is not None and one <= (major, minor) for one in portable) else ABSENT


def _arch(name: str) -> tuple[int, int] | None:
    """`sm_86` -> (8, 6); None for `sm_90a`, whose code runs on no other card."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)", name)
    return (int(match[1]), int(match[2])) if match else None


def version(text: str) -> tuple[int, int]:
    """The first two numbers of a version: `12.8` -> (12, 8), (0, 0) for none."""
    numbers = [int(part) for part in re.findall(r"\d+", text)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0] if numbers else 0, 0)


def served_cuda(number: float) -> tuple[int, int]:
    """NVML's number of the highest CUDA version that a driver serves: 12040 -> (12, 4) (nvml.h)."""
    return int(number) // 1000, int(number) % 1000 // 10


def too_old(serves: tuple[int, int], built: tuple[int, int]) -> bool:
    """Whether a driver is too old for a build: it serves all toolkits of its own major version and of earlier ones.

    Source: CUDA Compatibility, "minor version compatibility". NVIDIA's forward-compatibility package can make it work
    all the same: ask torch first.
    """
    return built[0] > serves[0]

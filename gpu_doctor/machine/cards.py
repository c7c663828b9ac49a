"""What is known of NVIDIA's cards: their peaks, limits of clocks, lanes of a link, CUDA versions, architectures.

Pure arithmetic on plain values: the check-up judges a machine with it before a run, the rules a recording after one.

Peaks are dense ones, from the vendor's data sheets by a card's name and the number format. Data sheets print tensor
peaks with 2:4 sparsity, marked by a star, which no training reaches: half of them stands here. Half precision is with
float32 accumulation, as PyTorch multiplies. A card that is not listed has no peak: None, never a guess from a card with
a like name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "ABSENT",
    "CARDS",
    "HELD_BIT",
    "IDLE_BIT",
    "LANE_GB_PER_S",
    "NATIVE",
    "POWER_CAP_BIT",
    "THROTTLE_BITS",
    "TRANSLATED",
    "Peaks",
    "architecture_support",
    "link_gb_per_s",
    "peak_flops_per_s",
    "peaks_of",
    "served_cuda",
    "too_old",
    "version",
]

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
    0x10: "clocks tied to other GPUs (sync boost)",
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


@dataclass(frozen=True)
class Peaks:
    """Dense peaks of one kind of card in TFLOP/s; None = the card has no units for that format."""

    half: float
    """float16 with float32 accumulation, on tensor cores where there are any."""
    float32: float
    """Outside of the tensor cores."""
    tf32: float | None = None
    bfloat16: bool = True
    """bfloat16 runs as fast as float16; False = the card has no units for it."""
    source: str = ""


_HOPPER: Final = "NVIDIA H100 and H200 data sheets; NVIDIA H100 Tensor Core GPU Architecture, table 3"
_AMPERE: Final = "NVIDIA A100 data sheet"
_GA102: Final = "NVIDIA Ampere GA102 GPU Architecture, appendix A"
_AD102: Final = "NVIDIA Ada GPU Architecture, appendices A and B"
_VOLTA: Final = "NVIDIA V100 data sheet"

CARDS: Final[Mapping[str, Peaks]] = {
    r"B200": Peaks(2250.0, 75.0, 1125.0, source="NVIDIA HGX B200 data sheet, an eighth of the board"),
    r"H200 NVL": Peaks(835.5, 60.0, 417.5, source=_HOPPER),
    r"H200|GH200": Peaks(989.4, 66.9, 494.7, source=_HOPPER),
    r"H100 NVL": Peaks(835.5, 60.0, 417.5, source=_HOPPER),
    r"H100 PCIe": Peaks(756.5, 51.0, 378.0, source=_HOPPER),
    r"H100.*HBM3|H100 SXM5?": Peaks(989.4, 66.9, 494.7, source=_HOPPER),
    r"A100": Peaks(312.0, 19.5, 156.0, source=_AMPERE),
    r"A30": Peaks(165.0, 10.3, 82.0, source="NVIDIA A30 data sheet"),
    r"A40": Peaks(149.7, 37.4, 74.8, source="NVIDIA A40 data sheet"),
    r"A10": Peaks(125.0, 31.2, 62.5, source="NVIDIA A10 data sheet"),
    r"L40S": Peaks(362.05, 91.6, 183.0, source="NVIDIA L40S data sheet"),
    r"L40": Peaks(181.05, 90.5, 90.5, source="NVIDIA L40 data sheet"),
    r"L4": Peaks(121.0, 30.3, 60.0, source="NVIDIA L4 data sheet"),
    r"T4": Peaks(65.0, 8.1, bfloat16=False, source="NVIDIA T4 data sheet"),
    r"V100S-PCIE": Peaks(130.0, 16.4, bfloat16=False, source=_VOLTA),
    r"V100-PCIE": Peaks(112.0, 14.0, bfloat16=False, source=_VOLTA),
    r"V100-SXM2": Peaks(125.0, 15.7, bfloat16=False, source=_VOLTA),
    r"P100-PCIE": Peaks(18.7, 9.3, bfloat16=False, source="NVIDIA P100 data sheet"),
    r"P100-SXM2": Peaks(21.2, 10.6, bfloat16=False, source="NVIDIA P100 data sheet"),
    r"RTX 6000 Ada Generation": Peaks(364.25, 91.1, 182.1, source="NVIDIA RTX 6000 Ada Generation data sheet"),
    r"RTX A6000": Peaks(154.8, 38.7, 77.4, source=_GA102),
    r"RTX 5090": Peaks(209.5, 104.8, 104.8, source="NVIDIA RTX Blackwell GPU Architecture, appendix A"),
    r"RTX 4090": Peaks(165.2, 82.6, 82.6, source=_AD102),
    r"RTX 4080": Peaks(97.5, 48.7, 48.7, source=_AD102),
    r"RTX 4070 Ti": Peaks(80.2, 40.1, 40.1, source=_AD102),
    r"RTX 3090 Ti": Peaks(80.0, 40.0, 40.0, source=_AD102),
    r"RTX 3090": Peaks(71.0, 35.6, 35.6, source=_GA102),
    r"RTX 3080": Peaks(59.5, 29.8, 29.8, source=_GA102),
    r"RTX 3070": Peaks(40.6, 20.3, 20.3, source=_GA102),
}
"""What must stand in the name that the driver gives, between word ends -> peaks; the first that fits counts."""
_OTHER_CARDS: Final = re.compile(r"\b(Laptop|Mobile|Max-Q|SUPER|MIG|GRID|D)\b|\b(3080|3070) Ti\b")
"""Words that make another card of one that is listed: fewer or more units, or a slice of them; these have no peak."""


def peaks_of(name: str) -> Peaks | None:
    """The peaks of a card, None if it is not listed."""
    if _OTHER_CARDS.search(name):
        return None
    for pattern, peaks in CARDS.items():
        if re.search(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])", name):
            return peaks
    return None


def peak_flops_per_s(name: str, kind: str) -> float | None:
    """Dense peak of a card in FLOP/s.

    Args:
        name: as the driver gives it, such as `NVIDIA H100 PCIe`.
        kind: `float32`, `tf32`, `float16`, `bfloat16`.

    Returns:
        None where the card is not listed or has no units for the format.
    """
    peaks = peaks_of(name)
    if peaks is None or (kind == "bfloat16" and not peaks.bfloat16):
        return None
    found = {"float32": peaks.float32, "tf32": peaks.tf32, "float16": peaks.half, "bfloat16": peaks.half}.get(kind)
    return None if found is None else found * 1e12

"""Data on NVIDIA's cards: peak rates, reasons for lower clocks, PCIe rates, CUDA versions and architectures.

It is pure arithmetic on plain values: the check-up judges a machine with it before a run, the rules a recording after.

Peaks are dense. They come from the vendor's data sheets, by the card's name and the number format, or are computed from
the vendor's architecture papers: multiprocessors times boost clock times operations a cycle. Data sheets print tensor
peaks with 2:4 sparsity, marked by a star, which no training reaches: this table has half of them. Half precision means
float32 accumulation, as PyTorch multiplies; GeForce cards do that at half the advertised rate. A card that is not
listed has no peak (None), never a guess from a card with a similar name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "ABSENT",
    "AMPERE",
    "CARDS",
    "HELD_BIT",
    "IDLE_BIT",
    "LANE_GB_PER_S",
    "NATIVE",
    "POWER_CAP_BIT",
    "TENSOR_CORES",
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
"""NVML's clock-limit bit for application or locked clocks."""
POWER_CAP_BIT: Final = 0x4
"""NVML's clock-limit bit for a card at its power limit, which is normal for a busy card and no fault."""
THROTTLE_BITS: Final = {
    0x8: "hardware slowdown (too hot, or too little power)",
    0x40: "hardware thermal slowdown",
    0x80: "power brake by the power supply",
    0x20: "software thermal slowdown",
    0x10: "clocks tied to other GPUs (sync boost)",
}
"""NVML's clock-limit bits (nvml.h, nvmlClocksEventReason*) that mean a slowed card, each with a description."""
LANE_GB_PER_S: Final = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Rate of one PCIe lane by generation, one way and after line coding, in GB/s. Source: PCI-SIG."""
TENSOR_CORES: Final = (7, 0)
"""Lowest compute capability with tensor cores (NVIDIA's tuning guides). Triton, in which torch.compile writes its
kernels, supports cards from it on."""
AMPERE: Final = (8, 0)
"""Lowest compute capability whose tensor cores support TF32 and bfloat16 (NVIDIA's Ampere tuning guide), and with
torch's flash attention."""
NATIVE: Final = 2
TRANSLATED: Final = 1
ABSENT: Final = 0


def link_gb_per_s(gen: float, width: float) -> float | None:
    """Returns the rate of a PCIe link one way, in GB/s; None for an unknown generation.

    Args:
        gen: PCIe generation.
        width: Number of lanes.
    """
    lane = LANE_GB_PER_S.get(int(gen))
    return None if lane is None else lane * width


def architecture_support(capability: tuple[int, int], arches: Sequence[str]) -> int:
    """Returns how a torch build supports a card: NATIVE, TRANSLATED at first use (slow start), or ABSENT.

    `sm_80` code runs on 8.0 and later minors of 8; `compute_80` is translated at first use on any later card; `sm_90a`
    runs on 9.0 alone (CUDA programming guide, "application compatibility").

    Args:
        capability: Compute capability of the card, such as (9, 0).
        arches: torch.cuda.get_arch_list(), such as `sm_90`, `compute_90`.
    """
    major, minor = capability
    native = {_arch(name) for name in arches if name.startswith("sm_")} - {None}
    portable = {_arch(name) for name in arches if name.startswith("compute_")} - {None}
    exact = f"sm_{major}{minor}" in {name.rstrip("af") for name in arches}
    if exact or any(arch is not None and arch[0] == major and arch[1] <= minor for arch in native):
        return NATIVE
    return TRANSLATED if any(arch is not None and arch <= (major, minor) for arch in portable) else ABSENT


def _arch(name: str) -> tuple[int, int] | None:
    """Returns the capability in a name: (8, 6) for `sm_86`; None for `sm_90a`, whose code runs on no other card."""
    match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)", name)
    return (int(match[1]), int(match[2])) if match else None


def version(text: str) -> tuple[int, int]:
    """Returns the first two numbers of a version: (12, 8) for `12.8`, (0, 0) for none."""
    numbers = [int(part) for part in re.findall(r"\d+", text)[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (numbers[0] if numbers else 0, 0)


def served_cuda(number: float) -> tuple[int, int]:
    """Converts NVML's number of the highest CUDA version that a driver supports: 12040 to (12, 4) (nvml.h)."""
    return int(number) // 1000, int(number) % 1000 // 10


def too_old(serves: tuple[int, int], built: tuple[int, int]) -> bool:
    """Returns True if a driver is too old for a build: it supports toolkits up to its own major version.

    Source: CUDA Compatibility, "minor version compatibility". NVIDIA's forward-compatibility package can make it work
    all the same, so check first whether torch can use the device.

    Args:
        serves: Highest CUDA version that the driver supports.
        built: CUDA version of the torch build.
    """
    return built[0] > serves[0]


@dataclass(frozen=True)
class Peaks:
    """Dense peaks of one kind of card in TFLOP/s; None = the card has no units for that format."""

    half: float | None
    """Peak of float16 with float32 accumulation, on tensor cores if there are any."""
    float32: float
    """Peak of float32 outside the tensor cores."""
    tf32: float | None = None
    float64: float | None = None
    """Peak of float64 as in matrix products, on tensor cores if they support it; None = not in the data sheet."""
    bfloat16: bool = True
    """True if bfloat16 runs as fast as float16; False if the card has no units for it."""
    source: str = ""


@dataclass(frozen=True)
class _Processor:
    """Floating-point operations a cycle of one streaming multiprocessor; a multiply-add counts as two."""

    half: int | None
    float32: int
    tf32: int | None
    float64: int
    bfloat16: bool
    source: str

    def card(self, processors: int, boost_ghz: float) -> Peaks:
        """Computes the peaks of a card from its number of multiprocessors and its boost clock in GHz."""

        def at(operations: int) -> float:
            return round(operations * processors * boost_ghz / 1e3, 3)

        half, tf32 = (None if rate is None else at(rate) for rate in (self.half, self.tf32))
        source = f"{processors} multiprocessors at {boost_ghz} GHz (computed); {self.source}"
        return Peaks(half, at(self.float32), tf32, at(self.float64), self.bfloat16, source)


_HOPPER: Final = "NVIDIA H100 and H200 data sheets; NVIDIA H100 Tensor Core GPU Architecture, table 3"
_AMPERE: Final = "NVIDIA A100 data sheet"
_VOLTA: Final = "NVIDIA V100 data sheet"
_PASCAL: Final = "NVIDIA P100 data sheet; its doubled half precision accumulates in half precision"

_KEPLER: Final = _Processor(None, 384, None, 128, False, "NVIDIA Kepler GK110/210 paper")
_VOLTA_SM: Final = _Processor(1024, 128, None, 64, False, "NVIDIA Tesla V100 GPU Architecture")
_TURING: Final = "NVIDIA Turing GPU Architecture, appendices"
_TURING_PRO: Final = _Processor(1024, 128, None, 4, False, _TURING)
_TURING_GEFORCE: Final = _Processor(512, 128, None, 4, False, _TURING)
_GA102: Final = "NVIDIA Ampere GA102 GPU Architecture, appendix A"
_AMPERE_PRO: Final = _Processor(1024, 256, 512, 4, True, _GA102)
_AMPERE_GEFORCE: Final = _Processor(512, 256, 256, 4, True, _GA102)
_AD102: Final = "NVIDIA Ada GPU Architecture, appendices A and B"
_ADA_PRO: Final = _Processor(1024, 256, 512, 4, True, _AD102)
_ADA_GEFORCE: Final = _Processor(512, 256, 256, 4, True, _AD102)
_GB202: Final = "NVIDIA RTX Blackwell GPU Architecture, appendix A"
_BLACKWELL_PRO: Final = _Processor(1024, 256, 512, 4, True, _GB202)
_BLACKWELL_GEFORCE: Final = _Processor(512, 256, 256, 4, True, _GB202)
"""GeForce cards multiply half precision with float32 accumulation at half the rate of the professional ones."""

_DATA_SHEETS: Final[Mapping[str, Peaks]] = {
    r"B200": Peaks(2250.0, 75.0, 1125.0, 37.0, source="NVIDIA HGX B200 data sheet, an eighth of the board"),
    r"H200 NVL": Peaks(835.5, 60.0, 417.5, 60.0, source=_HOPPER),
    r"H200|GH200": Peaks(989.4, 66.9, 494.7, 66.9, source=f"{_HOPPER}; NVIDIA GH200 data sheet"),
    r"H100 NVL": Peaks(835.5, 60.0, 417.5, 60.0, source=_HOPPER),
    r"H100 PCIe": Peaks(756.5, 51.0, 378.0, 51.0, source=_HOPPER),
    r"H100.*HBM3|H100 SXM5?": Peaks(989.4, 66.9, 494.7, 66.9, source=_HOPPER),
    r"A100": Peaks(312.0, 19.5, 156.0, 19.5, source=_AMPERE),
    r"A30": Peaks(165.0, 10.3, 82.0, 10.3, source="NVIDIA A30 data sheet"),
    r"A40": Peaks(149.7, 37.4, 74.8, 0.584, source="NVIDIA A40 data sheet; float64 computed"),
    r"A10": Peaks(125.0, 31.2, 62.5, 0.488, source="NVIDIA A10 data sheet; float64 computed"),
    r"A10G": Peaks(70.0, 35.0, 35.0, 0.547, source="NVIDIA A10G data sheet; float64 computed"),
    r"A2": Peaks(18.0, 4.5, 9.0, 0.071, source="NVIDIA A2 data sheet; float64 computed"),
    r"L40S": Peaks(362.05, 91.6, 183.0, 1.43, source="NVIDIA L40S data sheet; float64 computed"),
    r"L40": Peaks(181.05, 90.5, 90.5, 1.41, source="NVIDIA L40 data sheet; float64 computed"),
    r"L4": Peaks(121.0, 30.3, 60.0, 0.473, source="NVIDIA L4 data sheet; float64 computed"),
    r"T4": Peaks(65.0, 8.1, None, 0.254, bfloat16=False, source="NVIDIA T4 data sheet; float64 computed"),
    r"V100S-PCIE": Peaks(130.0, 16.4, None, 8.2, bfloat16=False, source=_VOLTA),
    r"V100-PCIE": Peaks(112.0, 14.0, None, 7.0, bfloat16=False, source=_VOLTA),
    r"V100-SXM2": Peaks(125.0, 15.7, None, 7.8, bfloat16=False, source=_VOLTA),
    r"P100-PCIE": Peaks(9.3, 9.3, None, 4.7, bfloat16=False, source=_PASCAL),
    r"P100-SXM2": Peaks(10.6, 10.6, None, 5.3, bfloat16=False, source=_PASCAL),
}
_MADE_OF: Final[Sequence[tuple[_Processor, Mapping[str, tuple[int, float]]]]] = (
    (_KEPLER, {"K80": (13, 0.875)}),  # each of the two GPUs of the board is a device of its own
    (_VOLTA_SM, {"TITAN V": (80, 1.455)}),
    (_TURING_PRO, {"TITAN RTX": (72, 1.77), "Quadro RTX 8000": (72, 1.77), "Quadro RTX 6000": (72, 1.77)}),
    (_TURING_PRO, {"Quadro RTX 5000": (48, 1.815), "Quadro RTX 4000": (36, 1.545)}),
    (_TURING_GEFORCE, {"RTX 2080 Ti": (68, 1.545), "RTX 2080 SUPER": (48, 1.815), "RTX 2080": (46, 1.71)}),
    (_TURING_GEFORCE, {"RTX 2070 SUPER": (40, 1.77), "RTX 2070": (36, 1.62)}),
    (_TURING_GEFORCE, {"RTX 2060 SUPER": (34, 1.65), "RTX 2060": (30, 1.68)}),
    (_AMPERE_PRO, {"RTX A6000": (84, 1.8), "RTX A5500": (80, 1.665), "RTX A5000": (64, 1.695)}),
    (_AMPERE_PRO, {"RTX A4500": (56, 1.65), "RTX A4000": (48, 1.56), "RTX A2000": (26, 1.2)}),
    (_AMPERE_GEFORCE, {"RTX 3090 Ti": (84, 1.86), "RTX 3090": (82, 1.695)}),
    (_AMPERE_GEFORCE, {"RTX 3080 Ti": (80, 1.665), "RTX 3080": (68, 1.71)}),
    (_AMPERE_GEFORCE, {"RTX 3070 Ti": (48, 1.77), "RTX 3070": (46, 1.725)}),
    (_AMPERE_GEFORCE, {"RTX 3060 Ti": (38, 1.665), "RTX 3060": (28, 1.777), "RTX 3050": (20, 1.777)}),
    (_ADA_PRO, {"RTX 6000 Ada Generation": (142, 2.505), "RTX 5000 Ada Generation": (100, 2.55)}),
    (_ADA_PRO, {"RTX 4500 Ada Generation": (60, 2.58), "RTX 4000 Ada Generation": (48, 2.175)}),
    (_ADA_PRO, {"RTX 2000 Ada Generation": (22, 2.13)}),
    (_ADA_GEFORCE, {"RTX 4090": (128, 2.52), "RTX 4080 SUPER": (80, 2.55), "RTX 4080": (76, 2.505)}),
    (_ADA_GEFORCE, {"RTX 4070 Ti SUPER": (66, 2.61), "RTX 4070 Ti": (60, 2.61)}),
    (_ADA_GEFORCE, {"RTX 4070 SUPER": (56, 2.475), "RTX 4070": (46, 2.475)}),
    (_ADA_GEFORCE, {"RTX 4060 Ti": (34, 2.535), "RTX 4060": (24, 2.46)}),
    (_BLACKWELL_PRO, {"RTX PRO 6000 Blackwell Workstation Edition": (188, 2.617)}),
    (_BLACKWELL_GEFORCE, {"RTX 5090": (170, 2.407), "RTX 5080": (84, 2.617)}),
    (_BLACKWELL_GEFORCE, {"RTX 5070 Ti": (70, 2.452), "RTX 5070": (48, 2.512)}),
    (_BLACKWELL_GEFORCE, {"RTX 5060 Ti": (36, 2.572), "RTX 5060": (30, 2.497), "RTX 5050": (20, 2.572)}),
)
"""Streaming multiprocessors and boost clock (GHz) of the reference card, for cards whose data sheets print no peaks, or
only sparse or half-accumulated ones. Source: NVIDIA's architecture papers and product pages."""

CARDS: Final[Mapping[str, Peaks]] = {
    **_DATA_SHEETS,
    **{name: sm.card(*made) for sm, cards in _MADE_OF for name, made in cards.items()},
}
"""Peaks by a pattern that must match whole words in the name from the driver; the first match counts."""
_OTHER_CARDS: Final = re.compile(r"\b(Laptop|Mobile|Max-Q|MIG|GRID|CMP)\b|-\d+[QCAB](ME)?\b", re.IGNORECASE)
"""Words that denote a variant of a listed card, with fewer or slower units, or a slice of it; these have no peak."""
_ANOTHER: Final = r"(?! (?:Ti|SUPER|D|D2|SFF)\b)"
"""Pattern that excludes words after a listed name which make it the name of another card."""


def peaks_of(name: str) -> Peaks | None:
    """Returns the peaks of a card by its name from the driver; None if it is not listed."""
    if _OTHER_CARDS.search(name):
        return None
    for pattern, peaks in CARDS.items():
        if re.search(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9]){_ANOTHER}", name):
            return peaks
    return None


def peak_flops_per_s(name: str, kind: str) -> float | None:
    """Returns the dense peak of a card in FLOP/s; None if the card is not listed or has no units for the format.

    Args:
        name: Name from the driver, such as `NVIDIA H100 PCIe`.
        kind: `float64`, `float32`, `tf32`, `float16` or `bfloat16`.
    """
    peaks = peaks_of(name)
    if peaks is None or (kind == "bfloat16" and not peaks.bfloat16):
        return None
    formats = {"float64": peaks.float64, "float32": peaks.float32, "tf32": peaks.tf32}
    found = (formats | dict.fromkeys(("float16", "bfloat16"), peaks.half)).get(kind)
    return None if found is None else found * 1e12

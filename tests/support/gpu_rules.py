"""Every rule that prices a GPU's time, beside loops of every kind: does it speak where its cure gains, and only there?

The truth of a cell is the device's own: how much faster the loop is with the cure, played without any of our code.
GPU: not yet run on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpu_doctor.diagnosis.vitals.measure import measure
from gpu_doctor.recording import DeviceSetup, Recording
from gpu_doctor.recording.setup import (
    AttentionCalls,
    InputFacts,
    ModelFacts,
    OptimizerFacts,
)
from tests.support.found import BY_CAUSE, NEEDS
from tests.support.gpu_loops import CARD_BYTES, Way, Work, pace_us, recorded

GAINS: Final = 0.05
"""Smallest gain of a cure that must be named."""
NOTHING: Final = 0.03
"""Gain below which a cure must not be named; in between, either is right."""
FACTOR: Final = 2.1
"""Largest ratio of a price to its gain: an optimizer's price counts half of its phase, the least of three parts."""

COMPUTE: Final = Work()
HOST: Final = Work(kernel_us=5.0, update_us=5.0)
BALANCED: Final = Work(kernel_us=60.0)
SMALL: Final = replace(HOST, launches=30)
WAITS: Final = ("", "item", "scaler", "clip")
BOUND: Final = {
    "compute": (COMPUTE, Way()),
    "host": (HOST, Way()),
    "workers": (BALANCED, Way(fetch_us=32000.0)),
    "workers small": (SMALL, Way(fetch_us=16000.0)),
    "fetches": (BALANCED, Way(fetch_us=6000.0, workers=0)),
    "python": (BALANCED, Way(python_us=3000.0)),
}
"""Loops by what sets their pace: the device, launches, a loader's workers (with long and with short kernels), a loader
without workers, Python after the step."""
INPUT: Final = ("workers", "fetches")
"""Loops in which another cause comes first, so that this one need not be named."""
OTHERS: Final = (*INPUT, "python")
"""The same for cures that make the host's other work come less often, or earlier."""
LOOPS: Final = {
    f"{bound} {waits}".strip(): (work, replace(way, waits=waits))
    for bound, (work, way) in BOUND.items()
    for waits in WAITS
}

_Cure = Callable[[Work, Way], tuple[Work, Way]]


@dataclass(frozen=True)
class Case:
    """A cause, what makes a loop sick of it, and its cure."""

    rule: str
    cure: _Cure
    setup: dict[str, Any] = field(default_factory=dict)
    """Further fields of Setup."""
    sick: Callable[[Work], Work] = lambda work: work
    others: tuple[str, ...] = INPUT
    """Loops in which another cause comes first."""
    derived: Callable[[Recording], dict[str, Any]] = lambda recording: {}
    """Fields of Setup that follow from the recording."""


@dataclass(frozen=True)
class Cell:
    """A case in one loop."""

    rule: str
    loop: str
    gain: float
    """Part of the loop's time that the cure saves in truth, 0..1."""
    price: float | None
    """Price that the rule names; None if it names nothing, NaN if it names the cause without a price."""
    second: bool
    """True if another cause comes first: this one may be quiet, or name less."""
    at_most: bool = False
    """True if the price is a bound, which may be larger than the gain."""

    @property
    def verdict(self) -> str:
        """Verdict: `right`, `missed`, `invented`, or `price` if the cause is named rightly with a wrong price."""
        if self.price is None:
            return "missed" if self.gain >= GAINS and not self.second else "right"
        if self.gain < NOTHING:
            return "invented"
        if math.isnan(self.price):
            return "right"
        low = 0.0 if self.second else self.gain / FACTOR
        return "right" if low <= self.price <= (1.0 if self.at_most else self.gain * FACTOR) else "price"


def kernels(times: float, part: float = 1.0) -> _Cure:
    """Returns a cure that makes a part of the kernels so many times as fast."""
    return lambda work, way: (work.faster(times, part), way)


def _compiled(work: Work, way: Way) -> tuple[Work, Way]:
    return work.fewer(3), way


def _fused(work: Work, way: Way) -> tuple[Work, Way]:
    """Fuses the optimizer: Adam moves 18 numbers a weight (torch's `_multi_tensor_adam`), one fused kernel moves 7."""
    return replace(work, updates=2, update_us=work.updates * work.update_us * 7 / 18 / 2), way


def _together(work: Work, way: Way) -> tuple[Work, Way]:
    return replace(work.larger(work.micro), micro=1), way


def _packed(work: Work, way: Way) -> tuple[Work, Way]:
    return replace(work, copies=1, nbytes=work.nbytes * work.copies), way


def _odd_optimizer(work: Work) -> Work:
    return replace(work, updates=150, update_us=min(work.update_us, 10.0))


def _few_samples(recording: Recording) -> dict[str, Any]:
    """Returns loaders of a dataset so small that no larger batch can be advised."""
    return {"loaders": tuple(replace(one, dataset_len=20 * (one.batch_size or 1)) for one in recording.setup.loaders)}


_IMAGES: Final = InputFacts(looked_at=40, shapes=1, shape=(32, 3, 224, 224), dtype="float32", device="cuda:0")
_ROWS: Final = InputFacts(looked_at=40, shapes=1, shape=(32, 128), dtype="float32", device="cuda:0")
_CNN: Final[dict[str, Any]] = {"layers": {"Conv2d": 53, "Linear": 1}, "inputs": _IMAGES}
_FLOAT32: Final[dict[str, Any]] = {"autocast": "", "flags": {"matmul_precision": "highest"}}
_TURING: Final = (DeviceSetup(0, "Tesla T4", "GPU-1", CARD_BYTES, (7, 5)),)
_SMALL: Final[dict[str, Any]] = {"inputs": _ROWS, "model": ModelFacts({"cuda:0": 4 << 20})}
_PART: Final = 1024 / (6 * 768 + 1024)
"""Part of the arithmetic that is attention's."""
_BY_HAND: Final = AttentionCalls("by hand", 12, 16, 12, 1024, 1024, 64, "bfloat16")

CASES: Final = (
    Case("full-precision", kernels(1.5), _FLOAT32),
    Case("channels-first-convolutions", kernels(1.08), {**_CNN, "model": ModelFacts(convolutions=53)}),
    Case("cudnn-not-tuned", kernels(1.1), {**_CNN, "flags": {"cudnn_benchmark": False}}),
    Case("attention", kernels(1e9, _PART), {"attention_calls": (_BY_HAND,)}),
    Case(
        "double-precision",
        kernels(2.0),
        {
            "dtype": "float64",
            "autocast": "",
            "model": ModelFacts(dtype_bytes={"float64": 4 << 20}),
            "inputs": _ROWS,
            "parameters": 500_000,
        },
    ),
    Case("emulated-half-precision", kernels(1.5), {"devices": _TURING}),
    Case(
        "unfused-optimizer",
        _fused,
        {"optimizer_facts": (OptimizerFacts("AdamW", 150, 2_000_000, can_fuse=True),)},
        _odd_optimizer,
        OTHERS,
    ),
    Case("launch-bound", _compiled, others=OTHERS, derived=_few_samples),
    Case("not-compiled", _compiled, _SMALL, others=OTHERS),
    Case(
        "model-too-small",
        _compiled,
        {**_SMALL, "parameters": 1000, "inputs": replace(_ROWS, shape=(4096, 16))},
        others=OTHERS,
    ),
    Case("small-batch", lambda work, way: (work.larger(4), way), others=OTHERS),
    Case("needless-accumulation", _together, sick=lambda work: replace(work, micro=4), others=OTHERS),
    Case("host-sync", lambda work, way: (work, replace(way, blocks=False))),
    Case(
        "pageable-transfer",
        lambda work, way: (replace(work, pinned=True, blocking=False), replace(way, workers=max(way.workers, 1))),
        sick=lambda work: replace(work, nbytes=2e7, pinned=False, blocking=True),
    ),
    Case(
        "blocking-transfer",
        lambda work, way: (replace(work, blocking=False), way),
        sick=lambda work: replace(work, nbytes=2e7, blocking=True),
        others=OTHERS,
    ),
    Case(
        "heavy-transfer",
        lambda work, way: (replace(work, nbytes=work.nbytes / 4), way),
        sick=lambda work: replace(work, nbytes=1e8),
    ),
    Case("many-small-transfers", _packed, sick=lambda work: replace(work, copies=40, nbytes=1e3)),
)


def judge(case: Case, loop: str) -> Cell:
    """Returns what the rule says of the case in one loop, beside the true gain."""
    work, way = LOOPS[loop]
    work = case.sick(work)
    gain = 1.0 - pace_us(*case.cure(work, way)) / pace_us(work, way)
    recording = recorded(work, way)
    setup = {**case.setup, **case.derived(recording)}
    vitals = measure(replace(recording, setup=replace(recording.setup, **setup)))
    missing = [need for need in NEEDS[case.rule].needed(vitals) if getattr(vitals, need) is None]
    assert not missing, f"{case.rule} is not asked in {loop}: {missing}"
    found = next((one for one in BY_CAUSE[case.rule].finds(vitals) if one.rule == case.rule), None)
    price = None if found is None else math.nan if found.cost_share is None else found.cost_share
    at_most = found is not None and found.kind == "at-most"
    return Cell(case.rule, loop, gain, price, loop.startswith(case.others), at_most)

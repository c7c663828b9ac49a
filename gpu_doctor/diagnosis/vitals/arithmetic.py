"""Vitals of arithmetic: what the loop computes in a second, beside what the card could.

Floating-point operations are counted once, on a trial (see `Case.flops`), and never while the user's loop runs; without
a count all of this is None. GPU: not yet run on one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gpu_doctor.machine.cards import AMPERE, peak_flops_per_s
from gpu_doctor.recording import DeviceSetup, Recording, Setup, Steps

CONVOLUTIONS: Final = ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


@dataclass(frozen=True)
class ArithmeticVitals:
    """A part of Vitals."""

    flops_per_step: float | None = None
    """Floating-point operations of a step of this run (a multiplication and an addition are two): matrix products,
    convolutions and attention, forward and backward, as they are executed (recomputed ones count again)."""
    flops_per_s: float | None = None
    """The same a second of wall-clock, after warm-up."""
    peak_flops_per_s: float | None = None
    """Dense peak of the card that the loop trains on, for the number format in use; None for a card that is not
    listed, and on a CPU."""
    hfu_share: float | None = None
    """flops_per_s over the peak, 0..1: hardware FLOPs utilisation, what is recomputed included."""


def arithmetic(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """What is read off a recording for the fields above; a name that is left out is None = not measured.

    Args:
        recording: of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up.
    """
    counted, peak = recording.flops, _peak(recording.setup)
    found: dict[str, Any] = {"peak_flops_per_s": peak}
    rest = steps.where(steps.start_s >= begin_s)
    count, wall_s, samples = (float(one.sum()) for one in (rest.count, rest.wall_s, rest.samples))
    if counted is None or not count or not wall_s > 0:
        return found
    per_step: float | None = counted.per_step
    if counted.per_sample is not None:  # this run's batches may be of another size than the trial's
        per_step = counted.per_sample * samples / count if np.isfinite(samples) else None
    if per_step is None:
        return found
    per_s = per_step * count / wall_s
    return found | {"flops_per_step": per_step, "flops_per_s": per_s, "hfu_share": per_s / peak if peak else None}


def paced_arithmetic(found: dict[str, Any]) -> dict[str, Any]:
    """The same where the host ran ahead: the device computed for as long as a step took it.

    Args:
        found: the vitals so far, `host_ahead` among them.
    """
    names = ("flops_per_s", "hfu_share")
    return {name: found[name] / found["host_ahead"] for name in names if found.get(name) is not None}


def arithmetic_kind(setup: Setup) -> str:
    """The number format that the products are computed in: `float32`, `tf32`, `float16`, `bfloat16`, ...

    Where only some of the products may run in TF32 (cuDNN's convolutions do unless told otherwise), it is TF32: the
    share of the peak is then rather too low than too high.
    """
    kind = setup.autocast or setup.dtype
    if kind != "float32":
        return kind
    if not has_tf32(setup.card):
        return kind
    convolves = any(setup.layers.get(name) for name in CONVOLUTIONS)
    return "tf32" if matrices_in_tf32(setup) or (convolves and convolutions_in_tf32(setup)) else kind


def has_tf32(card: DeviceSetup | None) -> bool:
    """Whether a card is known to multiply in TF32; AMD's report capabilities of another kind."""
    return card is not None and card.at_least(AMPERE) and "AMD" not in card.name


def matrices_in_tf32(setup: Setup) -> bool:
    """Whether float32 matrix products may run in TF32, as far as torch's switch says; not by torch's default."""
    return bool(setup.flags.get("matmul_precision", "highest") != "highest")


def convolutions_in_tf32(setup: Setup) -> bool:
    """Whether cuDNN's convolutions and recurrent layers may.

    By torch's default they do, which stands where nobody asked (torch's notes on numerical accuracy).
    """
    return bool(setup.flags.get("cudnn_tf32", True))


def _peak(setup: Setup) -> float | None:
    return None if setup.card is None else peak_flops_per_s(setup.card.name, arithmetic_kind(setup))

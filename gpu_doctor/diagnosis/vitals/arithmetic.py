"""Vitals of arithmetic: how many FLOP/s the loop computes, and how many the card could.

Floating-point operations are counted once, in a trial (see `Case.flops`), and never while the user's loop runs. Without
a count all of these vitals but the card's peak are None. GPU: not yet run on one.
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
    """Fields of Vitals on arithmetic."""

    flops_per_step: float | None = None
    """Floating-point operations of a step of this run (a multiplication and an addition are two): matrix products,
    convolutions and attention, forward and backward, as they are executed (recomputed ones count again)."""
    flops_per_s: float | None = None
    """Floating-point operations per second of wall-clock, after warm-up."""
    peak_flops_per_s: float | None = None
    """Dense peak of the card that the loop trains on, for the number format in use; None for a card that is not
    listed, and on a CPU."""
    hfu_share: float | None = None
    """flops_per_s over the peak, 0..1: hardware FLOPs utilisation, which includes recomputed operations."""


def arithmetic(recording: Recording, steps: Steps, begin_s: float) -> dict[str, Any]:
    """Computes the fields of ArithmeticVitals; a field missing from the result was not measured.

    Args:
        recording: recording of a run or a trial.
        steps: the rows judged, warm-up included.
        begin_s: end of the warm-up, in seconds of the run.
    """
    counted, peak = recording.flops, _peak(recording.setup)
    found: dict[str, Any] = {"peak_flops_per_s": peak}
    rest = steps.where(steps.start_s >= begin_s)
    count, wall_s, samples = (float(column.sum()) for column in (rest.count, rest.wall_s, rest.samples))
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
    """Corrects the rates of a run whose host ran ahead of its device: a step lasts as long as the device takes for it.

    Args:
        found: the vitals computed so far, with `host_ahead`.

    Returns:
        The corrected `flops_per_s` and `hfu_share`, as far as they were measured.
    """
    names = ("flops_per_s", "hfu_share")
    return {name: found[name] / found["host_ahead"] for name in names if found.get(name) is not None}


def arithmetic_kind(setup: Setup) -> str:
    """Returns the number format of the matrix products: `float32`, `tf32`, `float16`, `bfloat16`, ...

    If only some of the products may run in TF32 (cuDNN's convolutions do by default), it is `tf32`: the share of the
    peak is then too low rather than too high.
    """
    kind = setup.autocast or setup.dtype
    if kind != "float32":
        return kind
    if not has_tf32(setup.card):
        return kind
    convolves = any(setup.layers.get(name) for name in CONVOLUTIONS)
    return "tf32" if matrices_in_tf32(setup) or (convolves and convolutions_in_tf32(setup)) else kind


def has_tf32(card: DeviceSetup | None) -> bool:
    """True if a card is known to multiply in TF32. AMD's cards are not judged: their capabilities mean other things."""
    return card is not None and card.at_least(AMPERE) and "AMD" not in card.name


def matrices_in_tf32(setup: Setup) -> bool:
    """True if torch's switch allows float32 matrix products to run in TF32; by default it does not."""
    return bool(setup.flags.get("matmul_precision", "highest") != "highest")


def convolutions_in_tf32(setup: Setup) -> bool:
    """True if cuDNN's convolutions and recurrent layers may run in TF32.

    If the switch was not read, torch's default counts: they may (torch's notes on numerical accuracy).
    """
    return bool(setup.flags.get("cudnn_tf32", True))


def _peak(setup: Setup) -> float | None:
    """Returns the peak FLOP/s of the card that the loop trains on; None on a CPU or for a card that is not listed."""
    return None if setup.card is None else peak_flops_per_s(setup.card.name, arithmetic_kind(setup))

"""Line costs scaled to the step clock.

The clock times a phase; stack samples only divide it into lines, as they include the slow first steps of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpu_doctor.recording import PHASES, LineCost

FEW_LOOKS: Final = 3.0
"""Smallest number of stack samples that may divide a phase; with fewer, lines keep the share that was sampled."""
MOST_TIMES: Final = 4.0
"""Largest factor by which a line's sampled share is scaled up."""


def fitted(lines: Sequence[LineCost], samples: int | None, found: Mapping[str, Any]) -> tuple[LineCost, ...]:
    """Scales line costs to the phases' shares by the clock; returns them costliest first.

    Args:
        lines: line costs of a recording.
        samples: number of stack samples of its loop; None = not counted, and assumed to be enough.
        found: the clock's shares: `forward_share` and its like, `other_share`, `loss_share`, `other_once_share`.
    """

    def share(name: str) -> float:
        return float(found.get(name) or 0.0)

    loss = min(share("loss_share"), share("other_share"))
    no_grad = min(share("no_grad_share"), share("forward_share"))
    outside = share("other_share") - loss
    # If no line is marked as a sub-phase (loss, no_grad), the lines share the whole phase.
    loss, outside = (loss, outside) if any(line.before_backward for line in lines) else (0.0, loss + outside)
    no_grad = no_grad if any(line.no_grad for line in lines) else 0.0
    spans = {phase: (0.0, share(f"{phase}_share")) for phase in PHASES}
    spans["forward"] = (share("forward_share") - no_grad,) * 2
    spans |= {"no_grad": (no_grad, no_grad), "loss": (loss, loss)}
    spans["other"] = (max(outside - share("other_once_share"), 0.0), outside)
    parts: dict[str, list[LineCost]] = {}
    for line in lines:
        named = "loss" if line.before_backward else "no_grad" if line.no_grad else line.phase
        parts.setdefault("" if line.in_worker or named not in spans else named, []).append(line)
    scaled = parts.pop("", [])
    for name, phase_lines in parts.items():
        scaled += _scaled(phase_lines, samples, *spans[name])
    return tuple(sorted(scaled, key=lambda line: -line.share))


def total(lines: Iterable[LineCost]) -> float:
    """Sums the lines' shares of the wall-clock."""
    return sum((line.share for line in lines), 0.0)


def part(selected: Iterable[LineCost], lines: Iterable[LineCost]) -> float:
    """Returns the part of `lines`' total share that the `selected` lines take, 0..1; 0 without samples."""
    whole = total(lines)
    return total(selected) / whole if whole > 0 else 0.0


def enough(share: float, samples: int | None) -> bool:
    """True if a share of the wall-clock got enough stack samples to be judged, or if samples were not counted."""
    return samples is None or share * samples >= FEW_LOOKS


def _scaled(lines: list[LineCost], samples: int | None, least: float, most: float) -> list[LineCost]:
    """Scales lines so that their sum is at most `most` and, with enough stack samples, at least `least`."""
    sampled = total(lines)
    if sampled <= 0:
        return lines
    wanted = min(max(sampled, min(least, MOST_TIMES * sampled)) if enough(sampled, samples) else sampled, most)
    return lines if wanted == sampled else [replace(line, share=line.share * wanted / sampled) for line in lines]
